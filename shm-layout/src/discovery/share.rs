//! How much memory a segment may take: a share of the least limit for this process.
//!
//! If a control group exceeds its memory limit, the kernel kills a process of the group instead of
//! refusing memory. So a segment is at most as large as its share, and the segments of crashed
//! processes together may take at most the same amount.
//!
//! | limit | share |
//! |---|---|
//! | control group: `memory.max` and `memory.high`, or version 1's `memory.limit_in_bytes`, of each group above as far as it can be seen | 1/16 |
//! | the machine's memory | 1/16 |
//! | `ulimit -v`, since a segment takes its addresses at once | 1/16 |
//! | `/dev/shm`, which the program itself may need | 1/4 |
//! | `ulimit -f` | all |
//!
//! Nothing here allocates on the heap. A file that cannot be read sets no limit.

use std::ffi::CStr;
use std::fmt;
use std::io;

use crate::descriptors::above_standard;
use crate::discovery::name::SHM;
use crate::layout::geometry::{Config, Geometry};

/// Minimum size of a segment, in bytes: a smaller one would be useless.
const LEAST: u64 = 512 << 10;
/// Maximum length of the path of a control group; for a longer path, only the groups above are
/// read.
const LONGEST: usize = 768;
/// A file is read in pieces of this size, in bytes. Of a longer line, only the beginning is used.
const PIECE: usize = 1024;
/// Number of attempts at a call that signals interrupt.
const CALL_ATTEMPTS: u32 = 16;

/// The source of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limiter {
    /// A control group that the process is in.
    ControlGroup,
    /// The machine, by the memory that it has.
    Machine,
    /// The address space: `RLIMIT_AS`.
    Addresses,
    /// `/dev/shm`.
    SharedMemory,
    /// The size of files: `RLIMIT_FSIZE`.
    FileSize,
}

impl fmt::Display for Limiter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::ControlGroup => "the control group's memory",
            Self::Machine => "the machine's memory",
            Self::Addresses => "`ulimit -v`",
            Self::SharedMemory => "/dev/shm",
            Self::FileSize => "`ulimit -f`",
        })
    }
}

/// The share of a limit that a segment may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The maximum size of the segment, in bytes.
    pub bytes: u64,
    /// The limit that `bytes` is a share of, and its kind. `None` if no limit makes a segment
    /// smaller than the maximum.
    pub of: Option<(u64, Limiter)>,
}

impl Share {
    /// The share of the calling process. Never inlined: else its large buffers would be in the
    /// frame of the caller while the segment is made.
    #[must_use]
    #[inline(never)]
    pub fn of_this_process() -> Self {
        let group = group_limit(c"/proc/self/cgroup", c"/sys/fs/cgroup");
        Self::least([
            (group, 16, Limiter::ControlGroup),
            (machine_memory(), 16, Limiter::Machine),
            (resource_limit(libc::RLIMIT_AS), 16, Limiter::Addresses),
            (size_of_shm(), 4, Limiter::SharedMemory),
            (resource_limit(libc::RLIMIT_FSIZE), 1, Limiter::FileSize),
        ])
    }

    fn least(limits: [(Option<u64>, u64, Limiter); 5]) -> Self {
        let largest = Geometry::new(Config::default()).len() as u64;
        let mut share = Self { bytes: largest, of: None };
        for (limit, part, limiter) in limits {
            if let Some(limit) = limit
                && limit / part < share.bytes
            {
                let bytes = (limit / part).max(LEAST.min(share.bytes));
                share = Self { bytes, of: Some((limit, limiter)) };
            }
        }
        share
    }
}

/// The least limit of the control groups that the process is in.
fn group_limit(list: &CStr, root: &CStr) -> Option<u64> {
    let mut path = Path::new(root)?;
    let root = path.len;
    // The version of the line that is used: version 1 if it still accounts the memory, else version
    // 2, whose line is last.
    let mut version = 0;
    for_each_line(list, |line| {
        let mut fields = line.splitn(3, |&byte| byte == b':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { return };
        let has_memory = controllers.split(|&byte| byte == b',').any(|it| it == b"memory");
        let found = if has_memory { 1 } else { 2 };
        if version == 1 || !(has_memory || controllers.is_empty()) {
            return;
        }
        version = found;
        path.len = root;
        if found == 1 {
            path.push(b"/memory");
        }
        // A group outside of the visible hierarchy has a path with `..`. Then only the root is
        // read.
        if !group.split(|&byte| byte == b'/').any(|name| name == b"..") {
            path.push(group);
        }
    });
    let (top, files): (usize, &[&[u8]]) = match version {
        1 => (root + b"/memory".len(), &[b"/memory.limit_in_bytes"]),
        2 => (root, &[b"/memory.max", b"/memory.high"]),
        _ => return None,
    };
    let mut least = None;
    loop {
        for file in files {
            if let Some(limit) = path.number_in(file) {
                least = Some(least.map_or(limit, |least: u64| least.min(limit)));
            }
        }
        if !path.pop(top) {
            return least;
        }
    }
}

/// A path in a buffer on the stack.
struct Path {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Path {
    /// Room for the longest name of a file, and the zero at the end.
    const SPARE: usize = 32;

    fn new(root: &CStr) -> Option<Self> {
        let mut path = Self { bytes: [0; LONGEST], len: 0 };
        path.push(root.to_bytes());
        (path.len == root.to_bytes().len()).then_some(path)
    }

    /// Appends as many whole components as fit.
    fn push(&mut self, more: &[u8]) {
        let room = LONGEST - Self::SPARE - self.len;
        let end = match more.get(..=room) {
            None => more.len(),
            Some(fits) => fits.iter().rposition(|&byte| byte == b'/').unwrap_or(0),
        };
        self.bytes[self.len..self.len + end].copy_from_slice(&more[..end]);
        self.len += end;
    }

    /// Removes the last component; false at the top.
    fn pop(&mut self, top: usize) -> bool {
        let last = self.bytes[..self.len].iter().rposition(|&byte| byte == b'/');
        match last.filter(|&last| last >= top) {
            Some(last) => self.len = last,
            None => return false,
        }
        true
    }

    /// The number in a file of this folder. `None` if the file is missing or contains "max".
    fn number_in(&self, file: &[u8]) -> Option<u64> {
        let mut path = [0; LONGEST];
        let end = self.len + file.len();
        path[..self.len].copy_from_slice(&self.bytes[..self.len]);
        path.get_mut(self.len..end)?.copy_from_slice(file);
        let path = CStr::from_bytes_until_nul(&path).ok()?;
        let mut number = None;
        for_each_line(path, |line| {
            number = number.or(std::str::from_utf8(line).ok().and_then(|line| line.parse().ok()));
        });
        number
    }
}

/// Reads a small file line by line, as far as it can be read.
fn for_each_line(path: &CStr, mut work: impl FnMut(&[u8])) {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    // SAFETY: a NUL-terminated path that outlives the call.
    let Some(file) =
        asked(|| above_standard(|| unsafe { libc::open(path.as_ptr(), flags) }) as isize)
    else {
        return;
    };
    let mut piece = [0; PIECE];
    let (mut filled, mut is_rest) = (0, false);
    // The number of reads is bounded, whatever the file contains.
    for _ in 0..64 {
        let free = &mut piece[filled..];
        // SAFETY: a descriptor that was just opened, and a buffer of that length.
        let read = || unsafe { libc::read(file as i32, free.as_mut_ptr().cast(), free.len()) };
        let read = asked(read).unwrap_or(0);
        filled += read;
        let mut line = |line: &[u8], is_over: bool| {
            if !is_rest {
                work(line);
            }
            is_rest = !is_over;
        };
        while let Some(end) = piece[..filled].iter().position(|&byte| byte == b'\n') {
            line(&piece[..end], true);
            piece.copy_within(end + 1..filled, 0);
            filled -= end + 1;
        }
        if read == 0 {
            line(&piece[..filled], true);
            break;
        }
        if filled == PIECE {
            line(&piece, false);
            filled = 0;
        }
    }
    // SAFETY: a descriptor that this function has opened and that is not used again.
    unsafe { libc::close(file as i32) };
}

/// Repeats a call that a signal has interrupted; `None` if the system refuses.
fn asked(mut ask: impl FnMut() -> isize) -> Option<usize> {
    for _ in 0..CALL_ATTEMPTS {
        match usize::try_from(ask()) {
            Ok(answer) => return Some(answer),
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    None
}

fn machine_memory() -> Option<u64> {
    // SAFETY: zeros are a value of that plain structure.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills `info`, which outlives it.
    asked(|| unsafe { libc::sysinfo(&raw mut info) } as isize)?;
    let bytes = (info.totalram as u64).checked_mul(u64::from(info.mem_unit.max(1)))?;
    (bytes > 0).then_some(bytes)
}

fn size_of_shm() -> Option<u64> {
    // SAFETY: zeros are a value of that plain structure.
    let mut space: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a NUL-terminated path, and a structure that outlives the call.
    asked(|| unsafe { libc::statfs(SHM.as_ptr(), &raw mut space) } as isize)?;
    // For a tmpfs without a size limit, this is 0.
    let bytes = space.f_blocks.checked_mul(u64::try_from(space.f_bsize).ok()?)?;
    (bytes > 0).then_some(bytes)
}

#[allow(clippy::useless_conversion, reason = "the type of a limit's name differs by library")]
fn resource_limit(what: impl TryInto<u32>) -> Option<u64> {
    let what = what.try_into().ok()?;
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
    // SAFETY: the call fills `limit`, which outlives it.
    asked(|| unsafe { libc::getrlimit(what as _, &raw mut limit) } as isize)?;
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A hierarchy of control groups made of plain files.
    struct Fake(PathBuf);

    impl Fake {
        fn new(name: &str, list: &str, limits: &[(&str, &str)]) -> Self {
            let root =
                std::env::temp_dir().join(format!("pfp-share-{}-{name}", std::process::id()));
            fs::create_dir_all(&root).expect("there is room");
            fs::write(root.join("list"), list).expect("there is room");
            for (file, limit) in limits {
                let file = root.join("groups").join(file);
                fs::create_dir_all(file.parent().expect("it is in a folder"))
                    .expect("there is room");
                fs::write(file, format!("{limit}\n")).expect("there is room");
            }
            Self(root)
        }

        fn limit(&self) -> Option<u64> {
            let path =
                |name| CString::new(self.0.join(name).as_os_str().as_bytes()).expect("no zero");
            group_limit(&path("list"), &path("groups"))
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the system")]
    fn the_least_limit_above_a_process_is_found() {
        let v1 = "12:cpu,cpuacct:/a\n4:hugetlb,memory:/docker/x\n1:name=systemd:/\n0::/\n";
        let long: String = (0..400).map(|step| format!("/{step:03}")).collect();
        let (up, long_list) = ("0::/../../elsewhere\n", format!("0::{long}\n"));
        let crowd = "9:cpu:/some/quite/long/path/of/a/group/in/a/pod\n".repeat(100) + v1;
        type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], Option<u64>);
        let cases: [Case<'_>; 14] = [
            ("own", "0::/a/b\n", &[("a/b/memory.max", "64"), ("a/memory.max", "max")], Some(64)),
            ("above", "0::/a/b\n", &[("a/b/memory.max", "64"), ("a/memory.max", "32")], Some(32)),
            ("high", "0::/a/b\n", &[("a/b/memory.max", "64"), ("memory.high", "16")], Some(16)),
            ("none", "0::/a\n", &[("a/memory.max", "max"), ("a/memory.high", "max")], None),
            ("not mine", "0::/a\n", &[("b/memory.max", "64")], None),
            ("no end", "0::/a", &[("a/memory.max", "64")], Some(64)),
            // A container that sees the host's path, but its own group as the root.
            ("hidden", "0::/docker/x\n", &[("memory.max", "64")], Some(64)),
            ("upwards", up, &[("memory.max", "64"), ("elsewhere/memory.max", "1")], Some(64)),
            ("old", v1, &[("memory/docker/x/memory.limit_in_bytes", "64")], Some(64)),
            ("old, hidden", v1, &[("memory/memory.limit_in_bytes", "64")], Some(64)),
            ("old, new too", v1, &[("memory.max", "1"), ("memory/docker/memory.max", "1")], None),
            ("many", &crowd, &[("memory/docker/memory.limit_in_bytes", "64")], Some(64)),
            ("long", &long_list, &[("memory.max", "64")], Some(64)),
            ("garbage", "\u{0}::\n::\n0:\n0::/\n", &[("memory.max", "-1 x")], None),
        ];
        for (name, list, limits, expected) in cases {
            assert_eq!(Fake::new(name, list, limits).limit(), expected, "{name}");
        }
        assert_eq!(group_limit(c"/no/such/list", c"/sys/fs/cgroup"), None);
        assert_eq!(group_limit(c"/proc/self", c"/sys/fs/cgroup"), None, "a folder");
    }

    #[test]
    fn the_least_share_counts() {
        let largest = Geometry::new(Config::default()).len() as u64;
        let least = |group: u64, machine: u64, shm: u64, file: Option<u64>| {
            Share::least([
                (Some(group), 16, Limiter::ControlGroup),
                (Some(machine), 16, Limiter::Machine),
                (None, 16, Limiter::Addresses),
                (Some(shm), 4, Limiter::SharedMemory),
                (file, 1, Limiter::FileSize),
            ])
        };
        let of = |limit, limiter| Some((limit, limiter));
        let whole = least(u64::MAX, 1 << 40, 1 << 40, None);
        assert_eq!(whole, Share { bytes: largest, of: None });
        let group = least(64 * MIB, 1 << 40, 64 * MIB, None);
        assert_eq!((group.bytes, group.of), (4 * MIB, of(64 * MIB, Limiter::ControlGroup)));
        let machine = least(u64::MAX, 1 << 30, 512 * MIB, None);
        assert_eq!((machine.bytes, machine.of), (64 * MIB, of(1 << 30, Limiter::Machine)));
        let shm = least(u64::MAX, 1 << 40, 64 * MIB, None);
        assert_eq!((shm.bytes, shm.of), (16 * MIB, of(64 * MIB, Limiter::SharedMemory)));
        let file = least(u64::MAX, 1 << 40, 1 << 40, Some(MIB));
        assert_eq!((file.bytes, file.of), (MIB, of(MIB, Limiter::FileSize)));
        // No segment becomes smaller than the useful minimum.
        assert_eq!(least(MIB, MIB, MIB, None).bytes, LEAST);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the system")]
    fn a_segment_is_no_larger_than_its_share() {
        for bytes in
            (0..).map(|step| LEAST + step * 97 * 1024).take_while(|&bytes| bytes < 300 * MIB)
        {
            let config = Config::within(bytes, None, None);
            let len = Geometry::new(config).len() as u64;
            assert!(len <= bytes, "{len} of {bytes}: {config:?}");
            // The segment uses nearly all of its share.
            let spare = bytes.min(Geometry::new(Config::default()).len() as u64) - len;
            assert!(spare <= 64 << 10, "{len} of {bytes}: {config:?}");
            // Each thread that has a lane needs a ring, cells and histograms.
            assert!(config.lanes * 6 <= config.blocks && config.lanes >= 2, "{config:?}");
            // This also holds if a program requests as many lanes as possible.
            let wanted = Config::within(bytes, Some(2_000), Some(500));
            assert_eq!((wanted.points, wanted.lanes), (2_000, 500));
            assert!(bytes < MIB || Geometry::new(wanted).len() as u64 <= bytes, "{wanted:?}");
        }
        assert_eq!(Config::within(u64::MAX, None, None), Config::default());
        assert!(Share::of_this_process().bytes >= LEAST);
    }
}
