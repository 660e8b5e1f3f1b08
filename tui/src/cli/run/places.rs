//! Finds the libraries that are loaded into programs.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Finds a library of one of these names, by a variable or in the usual places. If there is none,
/// returns the list of places.
pub(in crate::cli) fn find(names: &[&str], variable: &str) -> Result<PathBuf, String> {
    let places = match env::var_os(variable) {
        Some(named) => vec![named.into()],
        None => usual(names, env::var_os("HOME").map(PathBuf::from)),
    };
    let list = || places.iter().map(|it| it.display().to_string()).collect::<Vec<_>>().join(", ");
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(list)
}

/// Makes a path absolute for the started program: the program may have another working directory,
/// and its loader searches elsewhere for a name without a folder.
pub(in crate::cli) fn resolved(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// The usual places: next to this program, under its prefix, the user's own folders, the system's.
fn usual(names: &[&str], home: Option<PathBuf>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(own) = env::current_exe().ok().as_deref().and_then(Path::parent) {
        folders.push(own.to_owned());
        folders.extend(own.parent().map(|above| above.join("lib")));
    }
    let own = home.filter(|home| home.is_absolute()).map(|home| home.join(".local"));
    folders.extend(own.iter().flat_map(|prefix| ["lib", "lib64"].map(|lib| prefix.join(lib))));
    let architecture = format!("/usr/lib/{}-linux-gnu", env::consts::ARCH);
    folders.extend(["/usr/local/lib", "/usr/lib64", "/usr/lib", &architecture].map(PathBuf::from));
    folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_of_the_user_comes_before_that_of_the_system() {
        let names = ["libpfp.so", "libpfp.so.0"];
        let found = usual(&names, Some("/home/me".into()));
        let place = |path: &str| found.iter().position(|found| found == Path::new(path)).unwrap();
        for own in ["/home/me/.local/lib/libpfp.so", "/home/me/.local/lib64/libpfp.so.0"] {
            assert!(place(own) < place("/usr/local/lib/libpfp.so"), "{found:?}");
        }
        for home in [None, Some("home".into()), Some(PathBuf::new())] {
            let found = usual(&names, home);
            assert!(found.iter().all(|it| !it.to_string_lossy().contains(".local")));
        }
    }
}
