//! Patterns of point names, in the form of `PFP_ENABLE`.

use pfp_shm_layout::heap::{self, NoMemory};

/// Names with wild cards: `parse*,io_?`.
#[derive(Debug)]
pub(crate) struct Names {
    list: String,
}

impl Names {
    /// Parses patterns separated by commas, in which `*` matches any text and `?` one character.
    pub(crate) fn new(list: &str) -> Result<Self, NoMemory> {
        Ok(Self { list: heap::text(list)? })
    }

    /// Whether a pattern matches a name. No pattern matches the empty name.
    pub(crate) fn have(&self, name: &str) -> bool {
        let patterns = self.list.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
        let mut patterns = patterns.map(str::as_bytes);
        !name.is_empty() && patterns.any(|pattern| matches(pattern, name.as_bytes()))
    }
}

/// Whether a pattern matches a name. After a mismatch the search resumes at the last `*` only, so
/// it takes at most as many steps as the product of both lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    let mut star = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(b'?') => {
                at += 1;
                in_name += character(name, in_name);
            }
            Some(&byte) if byte == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => {
                let Some((after, taken)) = star else { return false };
                in_name = taken + character(name, taken);
                star = Some((after, in_name));
                at = after + 1;
            }
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

/// Number of bytes of the character that begins at `at`.
fn character(text: &[u8], at: usize) -> usize {
    let more = text[at + 1..].iter().take_while(|&&byte| byte & 0xc0 == 0x80);
    1 + more.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_wild_cards() {
        let new = |list| Names::new(list).expect("there is memory");
        let names = new("parse*, io_?,*tail*end,,exact");
        for name in ["parse", "parse_line", "io_r", "tailend", "a tail and an end end", "exact"] {
            assert!(names.have(name), "{name}");
        }
        for name in ["", "pars", "reparse", "io_", "io_rw", "tail", "exactly", "inexact"] {
            assert!(!names.have(name), "{name}");
        }
        // `?` matches one character, however many bytes it has.
        let names = new("p?rse,*→?,?");
        for name in ["pärse", "parse", "a→b", "ä→ö", "→→", "ö"] {
            assert!(names.have(name), "{name}");
        }
        for name in ["prse", "paarse", "a→", "→bc", "öö"] {
            assert!(!names.have(name), "{name}");
        }
        assert!(new("*").have("anything"));
        assert!(!new("*").have(""), "a numbered point without a name");
        assert!(!new("").have("anything"));
    }

    #[test]
    fn no_pattern_takes_long() {
        let name = "a".repeat(10_000);
        let pattern = format!("{}b", "a*".repeat(50));
        assert!(!Names::new(&pattern).is_ok_and(|names| names.have(&name)));
    }
}
