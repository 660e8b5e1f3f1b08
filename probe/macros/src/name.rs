//! The name of `pfp-probe` in the crate that is being compiled.
//!
//! `macro_rules!` has `$crate`, but procedural macros have no equivalent. So the name is read from
//! the manifest, where a dependency with `package = "pfp-probe"` may have another name than `pfp`.
//! This module parses only the few forms that Cargo allows, because a TOML parser would be larger
//! than the rest of the crate.

use std::fs;
use std::path::Path;

use proc_macro2::Span;
use syn::{Ident, parse_quote};

const PACKAGE: &str = "pfp-probe";

/// The path of the crate: `::pfp`, or the name in the manifest.
pub(crate) fn of_the_crate() -> syn::Path {
    #[expect(clippy::disallowed_methods, reason = "the compiler's, not a program's")]
    let here = std::env::var_os("CARGO_MANIFEST_DIR");
    match here.and_then(|here| renamed_in(Path::new(&here))) {
        Some(name) => {
            let name = Ident::new(&name, Span::call_site());
            parse_quote!(::#name)
        }
        None => parse_quote!(::pfp),
    }
}

/// The crate's name in a folder's manifest, or in the manifest of its workspace. `None` if the
/// crate is not renamed there.
fn renamed_in(folder: &Path) -> Option<String> {
    let manifest = |folder: &Path| fs::read_to_string(folder.join("Cargo.toml")).ok();
    let own = manifest(folder)?;
    let own = dependencies(&own);
    let found = own.iter().find(|found| found.is_renamed()).or_else(|| {
        // The nearest manifest of a workspace, in this folder or above it.
        let mut above = folder.ancestors().filter_map(manifest);
        let workspace =
            above.find(|text| text.lines().any(|line| line.starts_with("[workspace")))?;
        let there = dependencies(&workspace);
        let is_inherited = |found: &&Dependency| {
            let is_it = |all: &&Dependency| all.key == found.key && all.is_renamed();
            found.has("workspace=true") && there.iter().any(|all| is_it(&all))
        };
        own.iter().find(is_inherited)
    })?;
    let name = found.key.replace('-', "_");
    syn::parse_str::<Ident>(&name).is_ok().then_some(name)
}

/// A dependency in a manifest, or some of its settings.
struct Dependency {
    key: String,
    /// The settings as they are written in the manifest, but without blanks, and with `'` replaced
    /// by `"`.
    says: String,
}

impl Dependency {
    fn has(&self, what: &str) -> bool {
        self.says.contains(what)
    }

    fn is_renamed(&self) -> bool {
        self.has(&format!("package=\"{PACKAGE}\""))
    }
}

/// Parses `key = { ... }`, `key.what = ...`, and `[dependencies.key]` with settings on their own
/// lines.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut table = String::new();
    let mut lines = manifest.lines().map(plain);
    while let Some(line) = lines.next() {
        if let Some(header) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            header.clone_into(&mut table);
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let mut value = value.to_owned();
        // A value in braces may continue over several lines.
        while value.starts_with('{') && !value.ends_with('}') {
            let Some(next) = lines.next() else { break };
            value.push_str(&next);
        }
        let (key, says) = if table.ends_with("dependencies") {
            match key.split_once('.') {
                Some((key, what)) => (key, format!("{what}={value}")),
                None => (key, value),
            }
        } else if let Some((_, of)) = table.rsplit_once("dependencies.") {
            (of, format!("{key}={value}"))
        } else {
            continue;
        };
        let key = key.trim_matches('"').to_owned();
        found.push(Dependency { key, says });
    }
    found
}

/// Removes the blanks and the comment from a line.
fn plain(line: &str) -> String {
    let mut is_quoted = false;
    let is_said = |letter: &char| {
        is_quoted ^= matches!(letter, '"' | '\'');
        *letter != '#' || is_quoted
    };
    let said = line.chars().take_while(is_said).filter(|letter| !letter.is_whitespace());
    said.map(|letter| if letter == '\'' { '"' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(manifest: &str) -> Vec<String> {
        let all = dependencies(manifest);
        all.into_iter().filter(Dependency::is_renamed).map(|found| found.key).collect()
    }

    #[test]
    fn a_renamed_dependency_is_found_in_each_form() {
        for (manifest, expected) in [
            ("[dependencies]\npfp-probe = \"0.1\"\npfp = { path = \"x\" }", &[][..]),
            ("[dependencies]\nprof = { package = \"pfp-probe\", path = \"x\" }", &["prof"]),
            ("[dependencies]\nprof = { path = 'x', package = 'pfp-probe' } # a", &["prof"]),
            ("[dependencies]\n# prof = { package = \"pfp-probe\" }", &[]),
            ("[dependencies]\nprof={features=[\n\"a\",\n],package=\"pfp-probe\"}", &["prof"]),
            ("[dependencies.my-prof]\npath = \"x\"\npackage = \"pfp-probe\"", &["my-prof"]),
            ("[dependencies]\nprof.package = \"pfp-probe\"\nprof.path = \"x\"", &["prof"]),
            ("[dev-dependencies]\n\"prof\" = { package = \"pfp-probe\" }", &["prof"]),
            ("[target.'cfg(unix)'.dependencies]\np = { package = \"pfp-probe\" }", &["p"]),
            ("[workspace.dependencies]\nprof = { package = \"pfp-probe\" }", &["prof"]),
            ("[package.metadata]\nprof = { package = \"pfp-probe\" }", &[]),
            ("[dependencies]\nprof = { package = \"pfp-probe-2\" }", &[]),
        ] {
            assert_eq!(renamed(manifest), expected, "{manifest}");
        }
    }
}
