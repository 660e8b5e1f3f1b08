//! Folders of the user.

use std::env;
use std::path::{Path, PathBuf};

/// A folder of the user, such as the cache: the value of an XDG variable or, without it, a folder
/// below the home folder. Relative paths in the variable are ignored.
#[must_use]
pub fn folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    set(variable).or_else(|| Some(set("HOME")?.join(below_home)))
}

/// A path from the user, with a leading `~` replaced by the home folder.
pub fn with_home(path: impl AsRef<Path>) -> PathBuf {
    with(path.as_ref(), env::var_os("HOME").map(PathBuf::from))
}

fn with(path: &Path, home: Option<PathBuf>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        // Joining an empty path would append a slash.
        (Ok(rest), Some(home)) if rest.as_os_str().is_empty() => home,
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_is_the_home_folder() {
        let home = || Some(PathBuf::from("/home/ann"));
        for (written, meant) in [
            ("~", "/home/ann"),
            ("~/", "/home/ann"),
            ("~/a/~.json", "/home/ann/a/~.json"),
            ("~bob/a", "~bob/a"),
            ("a/~", "a/~"),
            ("/a", "/a"),
        ] {
            assert_eq!(with(Path::new(written), home()).as_os_str(), meant, "{written}");
        }
        assert_eq!(with(Path::new("~/a"), None), Path::new("~/a"));
    }
}
