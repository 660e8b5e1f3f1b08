//! The settings from the environment, read once for a program: forked children inherit them.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

use pfp_shm_layout::environment::variable;
use pfp_shm_layout::geometry::Config;
use pfp_shm_layout::heap::{self, Grow, NoMemory, ShortText};
use pfp_shm_layout::share::Share;

use super::names::Names;

/// The variables `PFP_*` of the program, except those that name folders.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Maximum number of points.
    points: Option<u32>,
    /// Number of lanes for threads.
    lanes: Option<u32>,
    /// Maximum memory for measurements, in MiB.
    memory_mb: Option<u32>,
    /// The clock source.
    pub(super) clock: Option<String>,
    /// Whether points named in the source measure from the start.
    pub(super) on_by_default: bool,
    /// Whether all points are fenced: their stamps wait until earlier instructions are done.
    pub(super) fence: bool,
    /// Whether the regions of all points count what they allocate.
    pub(super) allocs: bool,
    /// Patterns for the names of points that measure from the start even if the program declares
    /// them off, or `on_by_default` is false.
    pub(super) enabled_names: Names,
    /// The file to which a process writes its last figures at an orderly exit.
    pub(super) snapshot: Option<Asked>,
    /// Id of the `pfp-top run` that started the program or an ancestor; 0 without one.
    pub(super) run: u64,
}

static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(ptr::null_mut());

/// The settings, which the first call reads.
pub(super) fn get() -> Result<&'static Settings, NoMemory> {
    // Pairs with the exchange below.
    // SAFETY: the pointer is null, or leads to settings that are never freed.
    if let Some(known) = unsafe { SETTINGS.load(Acquire).as_ref() } {
        return Ok(known);
    }
    let new = Box::into_raw(heap::boxed(read()?)?);
    match SETTINGS.compare_exchange(ptr::null_mut(), new, Release, Acquire) {
        // SAFETY: `new` was made above, and is never freed once it is published.
        Ok(_) => Ok(unsafe { &*new }),
        Err(known) => {
            // SAFETY: `new` is from `Box::into_raw` above, and no other thread has seen it.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: published settings are never freed.
            Ok(unsafe { &*known })
        }
    }
}

impl Settings {
    /// The size of the segment: the requested size, or the share of memory that the limits allow.
    pub(super) fn config(&self, share: Share) -> Config {
        match self.memory_mb {
            Some(mb) => {
                let blocks = mb.saturating_mul(64);
                Config { blocks, ..Config::within(u64::MAX, self.points, self.lanes) }
            }
            None => Config::within(share.bytes, self.points, self.lanes),
        }
    }
}

fn read() -> Result<Settings, NoMemory> {
    let text = |name| variable(name).and_then(|value| value.to_str());
    let number = |name| text(name)?.parse::<u32>().ok();
    Ok(Settings {
        points: number(c"PFP_POINTS"),
        lanes: number(c"PFP_LANES"),
        memory_mb: number(c"PFP_MEMORY_MB"),
        clock: text(c"PFP_CLOCK").map(heap::text).transpose()?,
        on_by_default: variable(c"PFP_DEFAULT").is_none_or(|value| value != "off"),
        allocs: text(c"PFP_ALLOCS").is_some_and(|value| value == "1"),
        fence: text(c"PFP_FENCE").is_some_and(|value| value == "1"),
        enabled_names: Names::new(text(c"PFP_ENABLE").unwrap_or_default())?,
        snapshot: match variable(c"PFP_SNAPSHOT") {
            Some(path) => Asked::new(path)?,
            None => None,
        },
        run: text(c"PFP_RUN").and_then(|run| u64::from_str_radix(run, 16).ok()).unwrap_or(0),
    })
}

/// The value of `PFP_SNAPSHOT`: the file to which processes write their last figures.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The folder in which the program starts. Relative paths begin there, even if the program
    /// changes its folder.
    from: PathBuf,
    path: PathBuf,
}

impl Asked {
    pub(crate) fn new(path: &OsStr) -> Result<Option<Self>, NoMemory> {
        if path.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self { from: current_folder()?, path: heap::path(&[path.as_bytes()])? }))
    }

    /// Whether each process has a file of its own.
    pub(crate) fn is_per_process(&self) -> bool {
        names_process(self.path.as_os_str().as_bytes())
    }

    /// The path for this process: `%p` becomes its id, and `%%` a per cent sign.
    pub(crate) fn path_at_exit(&self) -> Result<PathBuf, NoMemory> {
        let path = self.path.as_os_str().as_bytes();
        let from = self.from.as_os_str().as_bytes();
        let (from, slash): (&[u8], &[u8]) = match path.first() {
            Some(b'/') => (b"", b""),
            _ if from.is_empty() => (b"", b""),
            _ => (from, b"/"),
        };
        let named = named_after(path, process_id())?;
        heap::path(&[from, slash, &named])
    }
}

/// The working directory of the process; empty if it is unknown.
pub(crate) fn current_folder() -> Result<PathBuf, NoMemory> {
    // The buffer is on the heap, because the stack may be a signal handler's.
    let mut folder = Vec::new();
    folder.try_resize_with(libc::PATH_MAX as usize, || 0_u8)?;
    // SAFETY: the call writes at most `folder.len()` bytes.
    let found = unsafe { libc::getcwd(folder.as_mut_ptr().cast(), folder.len()) };
    match CStr::from_bytes_until_nul(&folder) {
        Ok(folder) if !found.is_null() => heap::path(&[folder.to_bytes()]),
        _ => Ok(PathBuf::new()),
    }
}

fn process_id() -> libc::pid_t {
    // SAFETY: no preconditions.
    unsafe { libc::getpid() }
}

fn names_process(path: &[u8]) -> bool {
    let mut bytes = path.iter();
    while let Some(byte) = bytes.next() {
        if *byte == b'%' && bytes.next() == Some(&b'p') {
            return true;
        }
    }
    false
}

fn named_after(path: &[u8], pid: libc::pid_t) -> Result<Vec<u8>, NoMemory> {
    let pid = ShortText::<16>::of(format_args!("{pid}"));
    let mut named = Vec::new();
    let mut bytes = path.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let (kept, takes_next) = match (byte, bytes.peek()) {
            (b'%', Some(b'p')) => (pid.as_bytes(), true),
            (b'%', Some(b'%')) => (&b"%"[..], true),
            _ => (&[byte][..], false),
        };
        named.try_reserve(kept.len())?;
        named.extend_from_slice(kept);
        if takes_next {
            bytes.next();
        }
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_names_the_process() {
        let named =
            |path: &str| String::from_utf8(named_after(path.as_ref(), 47).unwrap()).unwrap();
        assert_eq!(named("/tmp/run-%p.json"), "/tmp/run-47.json");
        assert_eq!(named("%p/%p%%p%"), "47/47%p%");
        assert_eq!(named("100%a"), "100%a");
        let is_named = |path: &str| names_process(path.as_ref());
        assert!(is_named("run-%p") && is_named("%%%p") && !is_named("%%p") && !is_named("p%"));
    }
}
