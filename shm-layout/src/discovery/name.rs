//! The name of an object.

use std::ffi::CStr;
use std::{fmt, io};

use super::system::{RETRIES, errno};

/// The folder in which the C library keeps POSIX shared-memory objects on Linux.
const SHM_ROOT: &[u8] = SHM.to_bytes();
/// [`SHM_ROOT`] with a NUL at its end, for system calls.
pub(crate) const SHM: &CStr = c"/dev/shm";
/// `/pfp-`, then 32 hex digits.
const PREFIX: &[u8] = b"/pfp-";
const HEX: usize = 32;
const NAME: usize = PREFIX.len() + HEX;

/// The name of a segment's object: `/pfp-` and 32 lower-case hex digits.
///
/// A value of this type always has that form, so it can be used in a path without a further check.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// The text and a closing NUL, ready for system calls.
    text: [u8; NAME + 1],
}

impl Name {
    /// A fresh random name.
    ///
    /// # Errors
    ///
    /// The error of `getrandom`, for example if the kernel has no random bytes yet.
    pub fn random() -> io::Result<Name> {
        let mut id = [0u8; HEX / 2];
        random_bytes(&mut id)?;
        Ok(Name::from_id(u128::from_be_bytes(id)))
    }

    /// The name that belongs to a 128-bit id.
    pub fn from_id(id: u128) -> Name {
        let mut text = [0u8; NAME + 1];
        text[..PREFIX.len()].copy_from_slice(PREFIX);
        for (place, byte) in text[PREFIX.len()..NAME].iter_mut().enumerate() {
            let nibble = (id >> (4 * (HEX - 1 - place))) as usize & 0xf;
            *byte = b"0123456789abcdef"[nibble];
        }
        Name { text }
    }

    /// Reads a name; `None` if it has another form.
    pub fn parse(text: &str) -> Option<Name> {
        let hex = text.as_bytes().strip_prefix(PREFIX)?;
        Name::from_hex(hex)
    }

    /// Reads 32 hex digits; `None` if the text is anything else.
    pub fn from_hex(hex: &[u8]) -> Option<Name> {
        if hex.len() != HEX {
            return None;
        }
        let mut id = 0u128;
        for &digit in hex {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            id = id << 4 | u128::from(value);
        }
        Some(Name::from_id(id))
    }

    /// The 128-bit id in the name.
    pub fn id(&self) -> u128 {
        self.hex()
            .bytes()
            .fold(0, |id, digit| id << 4 | u128::from((digit as char).to_digit(16).unwrap_or(0)))
    }

    /// The whole name, as `shm_open` takes it.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..NAME]).unwrap_or_default()
    }

    /// The 32 hex digits.
    pub fn hex(&self) -> &str {
        self.as_str().get(PREFIX.len()..).unwrap_or_default()
    }

    pub(super) fn as_cstr(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.text).unwrap_or_default()
    }

    /// The path under `/dev/shm`, on the stack: this also runs where allocating is forbidden.
    pub(super) fn path(&self) -> [u8; SHM_ROOT.len() + NAME + 1] {
        let mut path = [0u8; SHM_ROOT.len() + NAME + 1];
        path[..SHM_ROOT.len()].copy_from_slice(SHM_ROOT);
        path[SHM_ROOT.len()..].copy_from_slice(&self.text);
        path
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({})", self.as_str())
    }
}

/// The name needs to be unique, not secret: early in a boot, weaker bytes that do not make the host
/// wait are good enough.
fn random_bytes(bytes: &mut [u8]) -> io::Result<()> {
    const GRND_INSECURE: libc::c_uint = 4;
    let mut flags = GRND_INSECURE;
    for _ in 0..RETRIES {
        // SAFETY: writes at most `len` bytes to a buffer of that length.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), flags) };
        if usize::try_from(got) == Ok(bytes.len()) {
            return Ok(());
        }
        match errno() {
            // Before Linux 5.6.
            libc::EINVAL if got < 0 && flags == GRND_INSECURE => flags = libc::GRND_NONBLOCK,
            libc::EINTR => {}
            _ if got >= 0 => {}
            other => return Err(io::Error::from_raw_os_error(other)),
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_form() {
        let name = Name::from_id(0x0123_4567_89ab_cdef_0000_0000_0000_00ff);
        assert_eq!(name.as_str(), "/pfp-0123456789abcdef00000000000000ff");
        assert_eq!(Name::parse(name.as_str()), Some(name));
        assert_eq!(Name::from_id(name.id()), name);
        for wrong in [
            "",
            "/pfp-",
            "pfp-0123456789abcdef00000000000000ff",
            "/pfp-0123456789ABCDEF00000000000000ff",
            "/pfp-0123456789abcdef00000000000000f",
            "/pfp-0123456789abcdef00000000000000fff",
            "/pfp-../../../../../etc/passwd0000000",
            "/pfp-0123456789abcdef0000000000000\u{e9}f",
        ] {
            assert_eq!(Name::parse(wrong), None, "{wrong}");
        }
    }
}
