//! What the environment says, read once for a program: forked children inherit it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::mem::offset_of;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

use pfp_shm_layout::environment::variable;
use pfp_shm_layout::geometry::Config;
use pfp_shm_layout::share::Share;

use super::names::Names;

/// The variables `PFP_*` of the program, but for those that name folders.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Settings {
    /// Places for points.
    points: Option<u32>,
    /// Lanes for threads.
    lanes: Option<u32>,
    /// Most memory for what is measured, in MiB.
    memory_mb: Option<u32>,
    /// The clock source.
    pub(super) clock: Option<String>,
    /// Whether points named in the source measure from the start.
    pub(super) on_by_default: bool,
    /// Whether stamps wait for the work before them.
    pub(super) fence: bool,
    /// Which do in any case, by name.
    pub(super) enabled_names: Names,
    /// Where the last figures go when a process ends in order.
    pub(super) snapshot: Option<Asked>,
    /// The `pfp-top run` that started the program or an ancestor; 0 for none.
    pub(super) run: u64,
}

static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(ptr::null_mut());

/// The settings, read if nobody has done so yet.
pub(super) fn get() -> &'static Settings {
    // Meets the exchange below. SAFETY: null, or settings that are never freed.
    if let Some(known) = unsafe { SETTINGS.load(Acquire).as_ref() } {
        return known;
    }
    let new = Box::into_raw(Box::new(read()));
    match SETTINGS.compare_exchange(ptr::null_mut(), new, Release, Acquire) {
        // SAFETY: made above, and never freed from here on.
        Ok(_) => unsafe { &*new },
        Err(known) => {
            // SAFETY: made above, and nobody has seen it.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: never freed.
            unsafe { &*known }
        }
    }
}

impl Settings {
    /// Where another copy of pfp must expect what it uses.
    pub(super) const LAYOUT: [usize; 4] = [
        size_of::<Self>(),
        offset_of!(Self, on_by_default),
        offset_of!(Self, enabled_names),
        size_of::<Names>(),
    ];

    /// How large the segment is: as large as the share of memory allows, or as asked for.
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

fn read() -> Settings {
    let text = |name| variable(name).and_then(|value| value.to_str());
    let number = |name| text(name)?.parse::<u32>().ok();
    Settings {
        points: number(c"PFP_POINTS"),
        lanes: number(c"PFP_LANES"),
        memory_mb: number(c"PFP_MEMORY_MB"),
        clock: text(c"PFP_CLOCK").map(str::to_owned),
        on_by_default: variable(c"PFP_DEFAULT").is_none_or(|value| value != "off"),
        fence: text(c"PFP_FENCE").is_some_and(|value| value == "1"),
        enabled_names: Names::new(text(c"PFP_ENABLE").unwrap_or_default()),
        snapshot: variable(c"PFP_SNAPSHOT").and_then(Asked::new),
        run: text(c"PFP_RUN").and_then(|run| u64::from_str_radix(run, 16).ok()).unwrap_or(0),
    }
}

/// What `PFP_SNAPSHOT` asks for: where the last figures of processes go.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Where the program starts: paths are from there, wherever it goes.
    from: PathBuf,
    path: OsString,
}

impl Asked {
    pub(crate) fn new(path: &OsStr) -> Option<Self> {
        let asked = || Self { from: env::current_dir().unwrap_or_default(), path: path.into() };
        (!path.is_empty()).then(asked)
    }

    /// The path for this process: `%p` stands for its id and `%%` for a per cent sign.
    pub(crate) fn path_at_exit(&self) -> Option<PathBuf> {
        std::path::absolute(self.from.join(named_after(&self.path, process_id()))).ok()
    }
}

fn process_id() -> libc::pid_t {
    // SAFETY: no preconditions.
    unsafe { libc::getpid() }
}

fn named_after(path: &OsStr, pid: libc::pid_t) -> OsString {
    let mut named = Vec::new();
    let mut bytes = path.as_bytes().iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match (byte, bytes.peek()) {
            (b'%', Some(b'p')) => named.extend(pid.to_string().bytes()),
            (b'%', Some(b'%')) => named.push(b'%'),
            _ => {
                named.push(byte);
                continue;
            }
        }
        bytes.next();
    }
    OsString::from_vec(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_names_the_process() {
        let named = |path: &str| named_after(path.as_ref(), 47).into_string().unwrap();
        assert_eq!(named("/tmp/run-%p.json"), "/tmp/run-47.json");
        assert_eq!(named("%p/%p%%p%"), "47/47%p%");
        assert_eq!(named("100%a"), "100%a");
    }
}
