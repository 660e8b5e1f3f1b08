//! Opens all files that the user names, on the command line or in a variable.
//!
//! A name may lead to anything: an endless device, a pipe without a writer, a sparse file of
//! terabytes. So only regular files are opened, and standard input by `-`. The first bytes show the
//! kind of a file before the rest is read, and the number of bytes read into memory has a limit.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Maximum size of a snapshot as text or as a compressed file, and of standard input, in bytes.
pub const MAX_BYTES: u64 = 512 << 20;
/// The name of standard input.
pub const STDIN: &str = "-";
/// Number of first bytes that show the kind of a file.
pub const START: usize = 64;

/// A file that the user named, open for reading.
#[derive(Debug)]
pub enum Input {
    /// A regular file.
    File(File),
    /// The bytes of standard input, if that is not a regular file.
    Stdin(Arc<[u8]>),
}

impl Input {
    /// Opens a regular file, or standard input by `-`. Reads only the first bytes of standard input
    /// if `is_known` rejects them.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened, or is not a regular file.
    pub fn open(path: &Path, is_known: fn(&[u8]) -> bool) -> io::Result<Self> {
        if path != Path::new(STDIN) {
            return file(path).map(Self::File);
        }
        let stdin = io::stdin();
        let file = File::from(stdin.as_fd().try_clone_to_owned()?);
        if file.metadata()?.is_file() {
            return Ok(Self::File(file));
        }
        // A pipe can be read only once, but `-` may be opened several times, so share the bytes.
        static READ: OnceLock<Arc<[u8]>> = OnceLock::new();
        if let Some(read) = READ.get() {
            return Ok(Self::Stdin(Arc::clone(read)));
        }
        let mut start = Vec::new();
        (&file).take(START as u64).read_to_end(&mut start)?;
        if is_known(&start) {
            start = read_up_to((&start[..]).chain(&file), MAX_BYTES)?;
        }
        Ok(Self::Stdin(Arc::clone(READ.get_or_init(|| start.into()))))
    }

    /// The first bytes, at most [`START`].
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn start(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::Stdin(bytes) => Ok(bytes[..bytes.len().min(START)].to_vec()),
            Self::File(file) => read_up_to(At::new(file).take(START as u64), START as u64),
        }
    }

    /// The whole content, up to [`MAX_BYTES`].
    ///
    /// # Errors
    ///
    /// If the content is longer, or cannot be read.
    pub fn bytes(&self) -> io::Result<Arc<[u8]>> {
        match self {
            Self::Stdin(bytes) => Ok(Arc::clone(bytes)),
            Self::File(file) => whole(file, MAX_BYTES).map(Into::into),
        }
    }
}

/// Opens a regular file for reading, and nothing else.
///
/// # Errors
///
/// If it cannot be opened, or is not a regular file: a pipe would wait for a writer, and a device
/// has no end.
pub fn file(path: &Path) -> io::Result<File> {
    // Opening a device can have effects, so check first.
    check_regular(&std::fs::metadata(path)?)?;
    // Open without blocking: the file may have been replaced by a pipe since the check.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    check_regular(&file.metadata()?)?;
    Ok(file)
}

/// Refuses everything but a regular file.
///
/// # Errors
///
/// If it is not a regular file; the message names its kind.
pub fn check_regular(about: &Metadata) -> io::Result<()> {
    let kind = about.file_type();
    let found = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    let why = format!("expected a regular file, found {found}; `-` is standard input");
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Reads a regular file up to a limit.
///
/// # Errors
///
/// If the file is too long, is not a regular file, or cannot be read.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    whole(&file(path)?, most)
}

fn whole(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len();
    if len > most {
        return Err(too_long(most));
    }
    read_up_to(At::new(file), most)
}

fn read_up_to(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_long(most)) } else { Ok(bytes) }
}

fn too_long(most: u64) -> io::Error {
    let most = match most >> 20 {
        0 => format!("{} KiB", most >> 10),
        most => format!("{most} MiB"),
    };
    io::Error::new(io::ErrorKind::FileTooLarge, format!("expected at most {most}, found more"))
}

/// Reads a file from its beginning, independent of its shared position.
struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl<'a> At<'a> {
    fn new(file: &'a File) -> Self {
        Self { file, offset: 0 }
    }
}

impl Read for At<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let found = self.file.read_at(to, self.offset)?;
        self.offset += found as u64;
        Ok(found)
    }
}
