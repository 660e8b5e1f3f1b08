//! Annotations for other tools. If an environment variable names libpfp_inject, the runtime of such
//! a tool loads the library.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSymbol};

use super::places::{self, resolved};
use super::preload;
use crate::variables;
use pfp_read::files::input;

/// File name of the library that the runtimes of annotated programs load.
const LIBRARY: &str = "libpfp_inject.so";
/// Variable by which the library merges names that differ only in numbers.
const FOLD_DIGITS: &str = "PFP_FOLD_DIGITS";

/// Which annotations for other tools to measure, and how.
#[derive(Args, Clone, Debug)]
pub(super) struct InjectArgs {
    /// Measure only the annotations of these systems; the default is all but kokkos3.
    #[arg(long, value_name = "SYSTEMS", value_delimiter = ',', conflicts_with = "no_inject")]
    inject: Vec<System>,
    /// Do not measure the program's annotations for other tools.
    #[arg(long)]
    no_inject: bool,
    /// Run a program built with gcc's OpenMP on this LLVM libomp.so, which reports its regions. The
    /// runtime must have every function that the program calls.
    #[arg(long, value_name = "FILE", conflicts_with = "no_inject")]
    openmp_runtime: Option<PathBuf>,
    /// Merge names that differ only in numbers: 'seq = 17' becomes 'seq = #'.
    #[arg(long, conflicts_with = "no_inject")]
    fold_digits: bool,
}

/// A tool's interface that programs are annotated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum System {
    /// NVTX, of Nsight Systems.
    Nvtx,
    /// ITT, of VTune.
    Itt,
    /// OMPT, of OpenMP's runtimes.
    Ompt,
    /// Kokkos Tools.
    Kokkos,
    /// Kokkos Tools for Kokkos before 3.7. Later versions warn about its variable, so it is not a
    /// default.
    Kokkos3,
}

impl System {
    /// The systems that are set up if the user names none.
    pub(in crate::cli) const DEFAULT: [Self; 4] = [Self::Nvtx, Self::Itt, Self::Ompt, Self::Kokkos];

    /// The variable by which this system finds its tool's library.
    pub(in crate::cli) fn variable(self) -> &'static str {
        match self {
            Self::Nvtx => "NVTX_INJECTION64_PATH",
            Self::Itt => "INTEL_LIBITTNOTIFY64",
            Self::Ompt => "OMP_TOOL_LIBRARIES",
            Self::Kokkos => "KOKKOS_TOOLS_LIBS",
            Self::Kokkos3 => "KOKKOS_PROFILE_LIBRARY",
        }
    }
}

/// A message about the setup.
pub(super) enum Note {
    /// All is well.
    Fine(String),
    /// Something is not measured.
    Lacking(String),
}

impl Note {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Fine(text) | Self::Lacking(text) => text,
        }
    }
}

impl InjectArgs {
    /// The variables to add to a program's environment. Reports which are added, and which not.
    pub(super) fn environment(
        &self,
        mut say: impl FnMut(Note),
    ) -> Result<Vec<(&'static str, OsString)>> {
        if self.no_inject {
            return Ok(Vec::new());
        }
        let library = match find() {
            Ok(library) => resolved(&library),
            Err(places) if !self.inject.is_empty() || self.fold_digits => bail!(
                "annotations for other tools need {LIBRARY}, which was not found (searched: \
                 {places}); name it with {}",
                variables::INJECT_LIBRARY
            ),
            Err(_) => return Ok(Vec::new()),
        };
        let systems = match self.inject.is_empty() {
            true => &System::DEFAULT[..],
            false => &self.inject,
        };
        let mut added = Vec::new();
        for system in systems {
            let variable = system.variable();
            match env::var_os(variable).filter(|value| !value.is_empty()) {
                None => added.push((variable, library.clone().into_os_string())),
                Some(value) if is_the_same(&value, &library) => {}
                // Each system can load only one tool.
                Some(value) if self.inject.is_empty() => say(Note::Lacking(format!(
                    "{variable} already names {}; it stays set, so pfp does not measure that \
                     system",
                    value.display()
                ))),
                Some(value) => bail!(
                    "{variable} already names {}, and a program can load only one tool: unset it \
                     to load pfp instead",
                    value.display()
                ),
            }
        }
        if !added.is_empty() {
            let variables: Vec<_> = added.iter().map(|(variable, _)| *variable).collect();
            say(Note::Fine(format!("{} set to {}", variables.join(", "), library.display())));
        }
        if self.fold_digits {
            added.push((FOLD_DIGITS, "1".into()));
        }
        Ok(added)
    }

    /// A message if another OpenMP runtime replaces the program's own.
    pub(super) fn replaced_runtime(&self) -> Option<String> {
        let runtime = self.openmp_runtime.as_ref()?;
        Some(format!("the program runs on the OpenMP runtime {}", resolved(runtime).display()))
    }

    /// The OpenMP runtime to load with a program, if the user asked for one.
    pub(super) fn openmp_runtime(&self, program: &OsStr) -> Result<Option<PathBuf>> {
        let Some(runtime) = &self.openmp_runtime else { return Ok(None) };
        let name = runtime.display();
        let defined = Symbols::of(runtime)
            .with_context(|| format!("--openmp-runtime {name} cannot be read"))?;
        if !defined.defined.contains("GOMP_parallel") {
            bail!(
                "--openmp-runtime {name} is no OpenMP runtime for programs of gcc's: expected \
                 LLVM's libomp.so, found no GOMP_parallel in it"
            );
        }
        let Some(program) = preload::executable(program) else {
            return Ok(Some(resolved(runtime)));
        };
        // Libraries that the program loads later are not checked.
        for object in [vec![program.clone()], libraries(&program)].concat() {
            let Ok(symbols) = Symbols::of(&object) else { continue };
            // Skip gcc's own runtime, which defines these functions.
            if symbols.defined.contains("GOMP_parallel") {
                continue;
            }
            let is_openmp = |symbol: &&String| {
                ["GOMP_", "GOACC_", "omp_"].iter().any(|prefix| symbol.starts_with(prefix))
            };
            let lacking = symbols.needed.difference(&defined.defined).filter(is_openmp);
            let lacking: Vec<_> = lacking.map(String::as_str).collect();
            if !lacking.is_empty() {
                bail!(
                    "--openmp-runtime {name} lacks {}, which {} calls: it needs the runtime \
                     that it was built for",
                    lacking.join(", "),
                    object.display()
                );
            }
        }
        Ok(Some(resolved(runtime)))
    }
}

/// The libraries that the loader would load for a program. Empty if it has no loader, as for a
/// script.
pub(super) fn libraries(program: &Path) -> Vec<PathBuf> {
    let list = || -> Result<Vec<u8>> {
        let cache = ReadCache::new(input::file(program)?);
        let object = object::File::parse(&cache)?;
        let loader = object.section_by_name(".interp").context("it has no loader")?;
        let loader = loader.data()?.split(|&byte| byte == 0).next().unwrap_or_default();
        let mut loader = Command::new(OsStr::from_bytes(loader));
        Ok(loader.arg("--list").arg(resolved(program)).stdin(Stdio::null()).output()?.stdout)
    };
    let list = list().unwrap_or_default();
    // A line is "name => path (address)" or "path (address)".
    let path = |line: &[u8]| {
        let line = String::from_utf8_lossy(line);
        let found = line.split_once(" => ").map_or(line.trim(), |(_, found)| found);
        let (path, _) = found.rsplit_once(" (")?;
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    list.split(|&byte| byte == b'\n').filter_map(path).collect()
}

/// The dynamic symbols of an object. Undefined weak symbols are left out, since they may stay
/// undefined.
struct Symbols {
    defined: BTreeSet<String>,
    needed: BTreeSet<String>,
}

impl Symbols {
    fn of(path: &Path) -> Result<Self> {
        let cache = ReadCache::new(input::file(path)?);
        let object = object::File::parse(&cache)?;
        let (mut defined, mut needed) = (BTreeSet::new(), BTreeSet::new());
        for symbol in object.dynamic_symbols() {
            let of_kind = match symbol.is_undefined() {
                true if symbol.is_weak() => continue,
                true => &mut needed,
                false => &mut defined,
            };
            of_kind.extend(symbol.name().map(str::to_owned));
        }
        Ok(Self { defined, needed })
    }
}

/// A message if the library is missing, so that no annotations are measured.
pub(super) fn missing() -> Option<String> {
    find().is_err().then(|| {
        format!(
            "annotations for other tools are not measured: {LIBRARY} was not found, see \
             `pfp-top doctor`"
        )
    })
}

/// The library, or a list of the places that were searched.
pub(in crate::cli) fn find() -> Result<PathBuf, String> {
    places::find(&[LIBRARY], variables::INJECT_LIBRARY)
}

fn is_the_same(value: &OsStr, library: &Path) -> bool {
    fs::canonicalize(value).is_ok_and(|value| value == library)
}
