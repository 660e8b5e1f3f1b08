//! Readable names of functions, from their symbols.
//!
//! Functions of programs built with `-finstrument-functions` are named by the symbols in the
//! programs' object files. These files are not trusted, so nesting, intermediate length and final
//! length are limited.

use std::fmt::{self, Write as _};

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};

/// Maximum length of a symbol that is translated, in bytes.
const LONGEST: usize = 2048;
/// Maximum length of the translated name before it is shortened, in bytes.
const ROOM: usize = 8192;
/// Maximum depth of nesting. A symbol can refer back to its own parts, so each level may double the
/// work.
const DEEP: u32 = 128;
/// Number of characters beyond which a name loses its template arguments, the innermost first.
const SHORT: usize = 120;

/// The readable name of a symbol, unless the symbol is readable already. A name that leaves out a
/// part of the symbol ends with a hash of the symbol, so that two functions never look alike.
pub(super) fn readable(symbol: &str) -> Option<String> {
    if let Some(name) = translated(symbol) {
        let short = shortened(&name);
        return Some(if short == name { name } else { tagged(&short, symbol) });
    }
    // The symbol could not be translated: it is nested too deep, too long, or truncated.
    (symbol.len() > SHORT && symbol.starts_with("_Z")).then(|| tagged(&outline(symbol), symbol))
}

fn translated(symbol: &str) -> Option<String> {
    if symbol.len() > LONGEST {
        return None;
    }
    let mut name = BoundedText(String::new());
    // Older Rust symbols are C++ symbols with a hash at the end, so try Rust first.
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        write!(name, "{rust:#}").ok()?;
    } else if symbol.starts_with("_Z") {
        let parse = ParseOptions::default().recursion_limit(DEEP);
        let parsed = BorrowedSymbol::new_with_options(symbol.as_bytes(), &parse).ok()?;
        let options = DemangleOptions::new().no_return_type().recursion_limit(DEEP);
        parsed.structured_demangle(&mut name, &options).ok()?;
    }
    let BoundedText(name) = name;
    (!name.is_empty()).then_some(name)
}

/// The namespaces, class and function of a symbol, as far as they are plain names.
fn outline(symbol: &str) -> String {
    let mut rest = symbol.trim_start_matches("_Z").trim_start_matches(['N', 'K', 'V', 'L']);
    let mut names = Vec::new();
    if let Some(inside) = rest.strip_prefix("St") {
        names.push("std");
        rest = inside;
    }
    loop {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let length = rest[..digits].parse::<usize>().unwrap_or(0);
        let Some(name) = rest.get(digits..digits.saturating_add(length)) else { break };
        if name.is_empty() {
            break;
        }
        names.push(name);
        rest = &rest[digits + length..];
    }
    let outline = match names.is_empty() {
        true => symbol.to_owned(),
        false => format!("{}<…>", names.join("::")),
    };
    // Keep the result short: `readable` shortens only long names, so it does not change its own
    // result.
    let most = SHORT - 20;
    if outline.len() <= most {
        return outline;
    }
    outline.chars().take(most - 20).chain(['…']).collect()
}

/// Appends the FNV-1a hash of a symbol to a name that lacks a part of the symbol.
fn tagged(name: &str, symbol: &str) -> String {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = symbol.bytes().fold(0xcbf2_9ce4_8422_2325, add);
    format!("{name} #{:06x}", hash & 0xff_ffff)
}

/// Text of at most [`ROOM`] bytes.
struct BoundedText(String);

impl fmt::Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > ROOM {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

fn shortened(name: &str) -> String {
    let fits = |name: &str| name.chars().count() <= SHORT;
    if fits(name) {
        return name.to_owned();
    }
    let inner = without_arguments(name, 2);
    if fits(&inner) { inner } else { without_arguments(name, 1) }
}

/// The name without template arguments at this depth and deeper.
fn without_arguments(name: &str, at: usize) -> String {
    let mut left = String::new();
    let mut depth = 0usize;
    let mut before = ' ';
    let mut operator = false;
    for c in name.chars() {
        // The `<` and `>` of `operator<<` and `->` do not enclose arguments.
        operator = match c {
            '<' | '>' | '=' | '-' => operator || left.ends_with("operator"),
            _ => false,
        };
        let closes = c == '>' && !operator && before != '-';
        if closes {
            depth = depth.saturating_sub(1);
        }
        if depth < at {
            left.push(c);
        }
        if c == '<' && !operator {
            depth += 1;
            if depth == at {
                left.push('…');
            }
        }
        before = c;
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_both_languages_are_read() {
        for (symbol, name) in [
            ("_ZN5space3fooEibc", "space::foo(int, bool, char)"),
            ("_ZN3MapIiE3putEi", "Map<int>::put(int)"),
            ("_ZN1AC2Ev", "A::A()"),
            ("_ZlsRSoi", "operator<<(std::ostream&, int)"),
            ("_ZN3pfp9functions5enter17h84dc966cba39efbcE", "pfp::functions::enter"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
        ] {
            assert_eq!(readable(symbol).as_deref(), Some(name));
        }
        for other in ["main", "", "_", "_Z", "_R", "_Znonsense", "parse_line", "sqlite3VdbeExec"] {
            assert_eq!(readable(other), None, "{other}");
        }
    }

    #[test]
    fn long_templates_stay_distinguishable() {
        let long = format!("pair<{}, b<c>>::put(int) const", ["list<integers>"; 10].join(", "));
        assert!(long.len() > SHORT);
        let inner = ["list<…>"; 10].join(", ");
        assert_eq!(shortened(&long), format!("pair<{inner}, b<…>>::put(int) const"));
        let longer = format!("a<{}>::operator<<(int)", ["list<int>"; 30].join(", "));
        assert_eq!(shortened(&longer), "a<…>::operator<<(int)");
        assert_eq!(without_arguments("a<b<c>>::operator->(d<e>)", 1), "a<…>::operator->(d<…>)");
    }

    /// The symbol of `ns::Tool::work<T>`, where `T` is nested `levels` deep around `innermost`.
    fn deep(levels: usize, innermost: char) -> String {
        let outer: String = (1..=levels).rev().map(|level| format!("S2_ILi{level}E")).collect();
        let outer = outer.replacen("S2_", "1P", 1);
        format!("_ZN2ns4Tool4workI{outer}{innermost}{}EEiPT_", "E".repeat(levels))
    }

    #[test]
    fn names_that_are_too_deep_or_too_long_differ() {
        for levels in [10, 20, 60, 100, 300] {
            let [one, other] = ['c', 's'].map(|innermost| readable(&deep(levels, innermost)));
            let (one, other) = (one.expect("it is read"), other.expect("it is read"));
            assert!(one.starts_with("ns::Tool::work<") && one != other, "{one} {other}");
            assert!(one.chars().count() < 2 * SHORT, "{one}");
        }
        // A segment stores a longer symbol truncated, with a hash at the end.
        let cut = format!("{}#0123af", &deep(300, 'c')[..1017]);
        let name = readable(&cut).expect("it is read");
        assert!(name.starts_with("ns::Tool::work<…> #"), "{name}");
        let unknown = format!("_ZZ{}", "x".repeat(300));
        let name = readable(&unknown).expect("it is read");
        assert!(name.starts_with("_ZZxxx") && name.contains("x… #"), "{name}");
        assert_eq!(readable(&name), None, "it is readable now");
        let other = readable(&format!("{unknown}y"));
        assert!(other.is_some_and(|other| other != name));
    }

    /// Each level refers to the previous one twice, so thirty levels would expand to a thousand
    /// million names.
    #[test]
    fn exponential_symbols_are_bounded() {
        let mut symbol = "_Z1fI1AE1BI".to_owned();
        for level in 0..30 {
            let part = if level == 0 { "S_".to_owned() } else { format!("S{}_", level - 1) };
            symbol.push_str(&format!("1PI{part}{part}E"));
        }
        symbol.push_str("Ev");
        assert!(readable(&symbol).is_none_or(|name| name.len() <= ROOM));
        let nested = format!("_Z1f{}v", "P".repeat(LONGEST - 10));
        assert_eq!(translated(&nested), None);
        let nested = format!("_Z1f{}i{}", "1PI".repeat(300), "E".repeat(300));
        assert_eq!(translated(&nested), None);
        assert_eq!(translated(&format!("_Z{}", "1a".repeat(LONGEST))), None);
    }

    /// For any bytes, and for names with some bytes changed, translation ends within its limits.
    #[test]
    fn hostile_names_stay_within_bounds() {
        let seeds = [
            "_ZNSt6vectorISsSaISsEE9push_backERKSs",
            "_ZN1aIJS0_S0_EE1bIS_IJS1_S1_EEEEvDpT_",
            "_ZSt4moveIRSt10unique_ptrIN3foo3BarESt14default_deleteIS2_EEEvOT_",
            "_RINvNtC3std3mem8align_ofNtNtC3foo3bar3BazE",
            "_ZN4core3ptr85drop_in_place$LT$alloc..vec..Vec$LT$u8$GT$$GT$17h0123456789abcdefE",
            "_ZZN1a1bEvENKUlT_E_clIiEEDaS0_",
        ];
        let alphabet = b"_ZNSTIJELRKDptvsaiocCX0123456789$.";
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut below = |bound: usize| {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
        };
        let mut read = 0;
        for round in 0..20_000 {
            let mut name = seeds[round % seeds.len()].as_bytes().to_vec();
            for _ in 0..below(6) {
                let at = below(name.len());
                match below(3) {
                    0 => name[at] = alphabet[below(alphabet.len())],
                    1 => name.insert(at, alphabet[below(alphabet.len())]),
                    _ => {
                        let part = name[at..].to_vec();
                        name.extend(part);
                    }
                }
            }
            let name = String::from_utf8(name).expect("it is plain text");
            if let Some(found) = readable(&name) {
                assert!(found.len() <= ROOM, "{name}");
                read += 1;
            }
        }
        assert!(read > 2000, "only {read} names were read at all");
    }
}
