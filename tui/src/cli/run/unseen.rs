//! Explains why a program that has run recorded nothing, with advice.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use object::read::ReadCache;
use object::{Object, ObjectSection};

use super::inject::{self, System, libraries};
use super::preload::executable;
use pfp_read::files::input;

/// The names under which people know these systems.
const NAMED: [(System, &str); 3] =
    [(System::Nvtx, "NVTX"), (System::Itt, "ITT"), (System::Kokkos, "Kokkos Tools")];

/// Findings in the program's files.
#[derive(Default)]
struct Found {
    /// Whether the program is linked with GCC's OpenMP runtime.
    has_libgomp: bool,
    /// The variables of tools whose names occur in the program's objects.
    variables: Vec<&'static str>,
}

impl Found {
    fn of(program: Option<PathBuf>) -> Self {
        let mut found = Self::default();
        let Some(program) = program else { return found };
        let objects = [vec![program.clone()], libraries(&program)].concat();
        let is_libgomp = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"libgomp.so"))
        };
        found.has_libgomp = objects.iter().any(is_libgomp);
        let known = NAMED.map(|(system, _)| system).into_iter().chain([System::Kokkos3]);
        let known: Vec<_> = known.map(System::variable).collect();
        for object in objects {
            let named = |variable: &&&str| names(&object, variable.as_bytes());
            found.variables.extend(known.iter().filter(named));
        }
        found
    }

    fn has(&self, system: System) -> bool {
        self.variables.contains(&system.variable())
    }

    fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.has_libgomp {
            reasons.push(
                "it runs on GCC's OpenMP runtime, libgomp, which has no interface for tools \
                 (OMPT): --openmp-runtime FILE runs it on LLVM's libomp.so"
                    .to_owned(),
            );
        }
        if self.has(System::Kokkos3) && !self.has(System::Kokkos) {
            reasons.push(
                "its Kokkos is older than 3.7 and looks for tools in KOKKOS_PROFILE_LIBRARY: \
                 --inject kokkos3 sets that"
                    .to_owned(),
            );
        }
        let systems = NAMED.iter().filter(|(system, _)| self.has(*system));
        let systems: Vec<_> = systems.map(|(_, name)| *name).collect();
        if !systems.is_empty() {
            reasons.push(format!(
                "it can be annotated for {}, and reached no annotation",
                systems.join(" and ")
            ));
        }
        reasons
    }
}

/// Whether the constants of an object contain a text.
fn names(object: &Path, text: &[u8]) -> bool {
    let search = || {
        let cache = ReadCache::new(input::file(object).ok()?);
        let object = object::File::parse(&cache).ok()?;
        let constants = object.section_by_name(".rodata")?.data().ok()?;
        constants.windows(text.len()).any(|window| window == text).then_some(())
    };
    search().is_some()
}

/// A message that explains why a program has ended without recording anything.
pub(super) fn why(program: &OsStr) -> String {
    let name = Path::new(program).display();
    let mut reasons = Found::of(executable(program)).reasons();
    if reasons.is_empty() {
        reasons.push(
            "it reached no point of pfp-probe (with its feature `enabled`, the default) and no \
             annotation for NVTX, ITT, OpenMP's tools or Kokkos Tools"
                .to_owned(),
        );
    }
    reasons.extend(inject::missing());
    format!("{name} exited without recording anything: {}", reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_follow_from_the_programs_files() {
        let reasons = |has_libgomp, variables: &[&'static str]| {
            Found { has_libgomp, variables: variables.to_vec() }.reasons().join("; ")
        };
        assert_eq!(reasons(false, &[]), "");
        assert!(reasons(true, &[]).contains("libgomp"));
        let (old, new) = ("KOKKOS_PROFILE_LIBRARY", "KOKKOS_TOOLS_LIBS");
        assert!(reasons(false, &[old]).contains("--inject kokkos3"));
        let newer = reasons(false, &[old, new]);
        assert!(newer.contains("Kokkos Tools") && !newer.contains("kokkos3"), "{newer}");
    }
}
