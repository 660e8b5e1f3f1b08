//! Sends this program to a place that has no pfp-top, or another version.
//!
//! The viewer sends a script to a shell there. The script reports the kind of machine, and reads
//! the program. Then it writes the program to a private file, opens and removes the file, and
//! executes the program through the descriptor. So no file is left, however the line ends.

use std::fs;
use std::io::{BufRead, Read as _, Write};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, pod};

use super::way::THIS;

/// Prefix of the lines that the script prints.
const SAYS: &str = "pfp-top-copy ";
/// Text that follows the prefix in the last line of the script.
const DONE: &str = "done";
/// Maximum number of bytes of other output, such as a greeting, before a line of the script.
const NOISE: u64 = 64 << 10;

/// This program, stripped of everything that is not needed to run.
pub(super) struct ProgramCopy {
    bytes: Vec<u8>,
    /// The minimum version of glibc that the program needs. `None` if the program does not use
    /// glibc.
    libc: Option<[u32; 2]>,
}

impl ProgramCopy {
    pub(super) fn load() -> Result<Self> {
        let mut bytes = fs::read(THIS).context("this program cannot be read")?;
        trim(&mut bytes).map_err(|error| anyhow!("this program cannot be read: {error}"))?;
        let libc = newest_libc(&bytes);
        Ok(Self { bytes, libc })
    }

    /// The script for the shell. The script is one command in braces, so the shell reads the whole
    /// script before it runs any part, and the rest of the input is left for the program.
    pub(super) fn script(&self) -> String {
        let len = self.bytes.len();
        format!(
            "{{ umask 077; t=$(mktemp -d \"${{TMPDIR:-/tmp}}/pfp-top.XXXXXX\") || exit 1; \
             f=$t/pfp-top; \
             echo \"{SAYS}$(uname -s) $(uname -m) $(getconf GNU_LIBC_VERSION 2>/dev/null)\"; \
             head -c {len} >\"$f\"; \
             [ \"$(wc -c <\"$f\")\" -eq {len} ] && chmod 700 \"$f\" && exec 9<\"$f\" && o=1; \
             rm -rf \"$t\"; [ -n \"$o\" ] || exit 1; \
             echo \"{SAYS}{DONE}\"; exec /proc/self/fd/9 agent; }}\n"
        )
    }

    /// Sends the program if it can run at the place.
    ///
    /// # Errors
    ///
    /// If the program cannot run there, or the connection ends.
    pub(super) fn send(&self, there: &str, to: &mut impl Write) -> Result<()> {
        let mut words = there.split_ascii_whitespace();
        let (system, machine) =
            (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let own = std::env::consts::ARCH;
        ensure!(
            system == "Linux" && machine == own,
            "expected a Linux on {own}, as this program is for, found {system} on {machine}; install \
             pfp-top there"
        );
        if let Some(needed) = self.libc {
            let version = words.next().filter(|name| *name == "glibc").and(words.next());
            let found = version.and_then(version_of);
            ensure!(
                found.is_some_and(|found| found >= needed),
                "expected glibc {}.{} or later, found {}; install pfp-top there, or copy one that \
                 was built for {own}-unknown-linux-musl",
                needed[0],
                needed[1],
                version.map_or("another C library".into(), |version| format!("glibc {version}")),
            );
        }
        to.write_all(&self.bytes).map_err(|_| anyhow!("it has ended"))
    }
}

/// The next line of the script. `None` after the last one.
///
/// # Errors
///
/// If the input ends, or has too much other output, before a line of the script.
pub(super) fn hear(input: &mut impl BufRead) -> Result<Option<String>> {
    let mut input = input.take(NOISE);
    let mut line = Vec::new();
    while input.limit() > 0 {
        line.clear();
        input.read_until(b'\n', &mut line)?;
        match line.strip_prefix(SAYS.as_bytes()) {
            Some(said) => {
                let said = String::from_utf8_lossy(said).trim().to_owned();
                return Ok((said != DONE).then_some(said));
            }
            None if line.is_empty() => bail!("it has ended"),
            None => {}
        }
    }
    bail!("expected a shell, found other data")
}

/// Removes the parts of an executable that are not loaded: three quarters of it are for debuggers.
fn trim(bytes: &mut Vec<u8>) -> object::Result<()> {
    let header = FileHeader64::<Endianness>::parse(bytes.as_slice())?;
    let endian = header.endian()?;
    let ends = header.program_headers(endian, bytes.as_slice())?.iter().map(|part| {
        let (from, len) = part.file_range(endian);
        from.saturating_add(len)
    });
    let end = ends.max().unwrap_or(0).max(size_of::<FileHeader64<Endianness>>() as u64);
    bytes.truncate(usize::try_from(end).unwrap_or(usize::MAX));
    // The section headers were at the end, so they have been removed, too.
    let Ok((header, _)) = pod::from_bytes_mut::<FileHeader64<Endianness>>(bytes) else {
        return Ok(());
    };
    header.e_shoff.set(endian, 0);
    header.e_shnum.set(endian, 0);
    header.e_shstrndx.set(endian, 0);
    Ok(())
}

/// The newest version of glibc that an executable requires.
fn newest_libc(bytes: &[u8]) -> Option<[u32; 2]> {
    const NAME: &[u8] = b"\0GLIBC_";
    let named = bytes.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME);
    let version = |(place, _)| {
        let text = bytes.get(place + NAME.len()..)?.split(|byte| *byte == 0).next()?;
        version_of(std::str::from_utf8(text).ok()?)
    };
    named.filter_map(version).max()
}

fn version_of(text: &str) -> Option<[u32; 2]> {
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_goes_only_where_it_runs() {
        let program = ProgramCopy { bytes: vec![1, 2, 3], libc: Some([2, 36]) };
        let own = std::env::consts::ARCH;
        let send = |there: &str| {
            let mut sent = Vec::new();
            program.send(there, &mut sent).map(|()| sent).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(send(&format!("Linux {own} glibc 2.36")), Ok(vec![1, 2, 3]));
        assert!(send(&format!("Linux {own} glibc 3.1")).is_ok());
        for (there, words) in [
            (format!("Linux {own} glibc 2.35"), "glibc 2.36 or later, found glibc 2.35"),
            (format!("Linux {own}"), "another C library"),
            ("Linux riscv64 glibc 2.40".into(), "found Linux on riscv64"),
            (format!("Darwin {own}"), "found Darwin on"),
            (String::new(), "found  on"),
        ] {
            let why = send(&there).expect_err("it does not run there");
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn a_trimmed_program_is_a_valid_executable() {
        let program = ProgramCopy::load().expect("it can be read");
        assert!(program.bytes.len() as u64 <= fs::metadata(THIS).expect("it is there").len());
        // A build for glibc requires at least version 2.2, since both x86-64 and aarch64 came
        // later.
        assert_eq!(program.libc.is_some(), cfg!(target_env = "gnu"));
        assert!(program.libc.is_none_or(|version| version >= [2, 2]));
        let object = object::File::parse(program.bytes.as_slice()).expect("it is an executable");
        assert_eq!(object::Object::sections(&object).count(), 0);
    }

    #[test]
    fn output_of_a_starting_shell_is_skipped() {
        let said = b"Welcome!\n\npfp-top-copy Linux x86_64 glibc 2.36\npfp-top-copy done\n";
        let mut input = &said[..];
        assert_eq!(hear(&mut input).unwrap().as_deref(), Some("Linux x86_64 glibc 2.36"));
        assert_eq!(hear(&mut input).unwrap(), None);
        assert_eq!(hear(&mut input).unwrap_err().to_string(), "it has ended");
    }
}
