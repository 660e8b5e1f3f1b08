//! A start that came to nothing, noted for whoever asks: a program says nothing where
//! it cannot measure, so this file does, beside the beacons.
//!
//! There is one for each program, `<16 hex>.failed`, of its last start that failed; the
//! next one that does not fail removes it.
//!
//! ```text
//! pfp-failure 1
//! pid=4242
//! stage=segment
//! errno=28
//! exe=/usr/bin/my%25prog
//! ```

use std::ffi::{CStr, CString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::beacon::{cut_exe, escape, unescape};
use crate::directory::Directory;
use crate::find::MAX_FILES;
use crate::object;

const MAGIC: &str = "pfp-failure 1";
const ENDING: &str = ".failed";
/// No note is longer.
const MAX_BYTES: u64 = 4096;

/// What could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The shared memory: nothing is measured.
    Segment,
    /// The private memory that leads to it: nothing is measured.
    Process,
    /// The beacon: it is measured, and nobody finds it.
    Beacon,
}

const STAGES: [(Stage, &str); 3] =
    [(Stage::Segment, "segment"), (Stage::Process, "process"), (Stage::Beacon, "beacon")];

/// A start that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The process.
    pub pid: u32,
    /// The program's path.
    pub exe: PathBuf,
    /// What could not be made.
    pub stage: Stage,
    /// The system's error; 0 where it told none.
    pub errno: i32,
}

/// The name of a program's note: FNV-1a of its path. Two programs of one hash share it,
/// as two runs of one program do.
fn file_name(exe: &Path) -> CString {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for &byte in cut_exe(exe).as_os_str().as_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    CString::new(format!("{hash:016x}{ENDING}")).unwrap_or_default()
}

/// Whether a file of that name is a note.
pub(crate) fn is_one(name: &CStr) -> bool {
    name.to_bytes().strip_suffix(ENDING.as_bytes()).is_some_and(|hash| hash.len() == 16)
}

impl Failure {
    /// Leaves the note, in place of one that is there.
    ///
    /// # Errors
    ///
    /// What the system answered: whatever kept the program from starting may keep it
    /// from saying so.
    pub fn note(&self, dir: &Directory) -> io::Result<()> {
        let Self { pid, exe, stage, errno } = self;
        let stage = STAGES.iter().find(|(known, _)| known == stage).map_or("", |(_, word)| word);
        let exe_text = escape(cut_exe(exe).as_os_str().as_bytes());
        let text = format!("{MAGIC}\npid={pid}\nstage={stage}\nerrno={errno}\nexe={exe_text}\n");
        object::check_file_limit(text.len() as u64)?;
        forget(dir, exe);
        let name = file_name(exe);
        let written = dir.create_file(&name)?.write_all(text.as_bytes());
        if written.is_err() {
            // Half a note says nothing.
            let _ = dir.remove(&name);
        }
        written
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != MAGIC {
            return None;
        }
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix('=');
        let pid = value("pid")?.parse().ok()?;
        let word = value("stage")?;
        let stage = STAGES.iter().find(|(_, known)| *known == word)?.0;
        let errno = value("errno")?.parse().ok()?;
        let exe = unescape(value("exe")?.as_bytes())?;
        Some(Self { pid, exe: PathBuf::from(std::ffi::OsString::from_vec(exe)), stage, errno })
    }
}

/// Removes a program's note, if there is one.
pub fn forget(dir: &Directory, exe: &Path) {
    // Most often there is none.
    let _ = dir.remove(&file_name(exe));
}

/// All the notes in a directory. What is none is left out.
///
/// # Errors
///
/// If the directory itself cannot be read.
pub fn find(dir: &Directory) -> io::Result<Vec<Failure>> {
    let read = |name: &CString| {
        let mut text = String::new();
        dir.open_file(name).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
        Failure::parse(&text)
    };
    let (names, _) = dir.names(MAX_FILES)?;
    Ok(names.iter().filter(|name| is_one(name)).filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_found_until_it_is_forgotten() {
        let path = std::env::temp_dir().join(format!("pfp-failure-{}", std::process::id()));
        let dir = Directory::create(&path).expect("there is room");
        let of = |errno| Failure {
            pid: 42,
            exe: "/usr/bin/my %prog\n".into(),
            stage: Stage::Beacon,
            errno,
        };
        of(28).note(&dir).expect("there is room");
        of(24).note(&dir).expect("there is room");
        assert_eq!(find(&dir).expect("it can be read"), [of(24)]);
        forget(&dir, Path::new("/usr/bin/another"));
        assert_eq!(find(&dir).expect("it can be read").len(), 1);
        forget(&dir, &of(24).exe);
        assert_eq!(find(&dir).expect("it can be read"), []);
        std::fs::remove_dir(path).expect("nothing is left in it");
    }

    #[test]
    fn what_is_no_note_is_left_out() {
        for text in ["", "pfp-failure 2\n", "pfp-failure 1\npid=x", "pfp-failure 1\npid=1\n"] {
            assert_eq!(Failure::parse(text), None, "{text:?}");
        }
    }
}
