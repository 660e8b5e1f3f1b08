//! Turns the arguments of a waiting system call into words.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::rc::Rc;

use super::calls::{self, Detail};
use super::futex::{self, Purpose, Threads};
use super::process::{Call, Process, text_of};
use super::{Kind, Reason, Wait};
use crate::source::address::Addresses;
use crate::text::clean;

/// Number of bytes of a stack in which the function that waits is looked for.
const STACK: usize = 1024;
/// Maximum number of functions and sockets whose names are kept.
const MOST: usize = 10_000;
const MOST_SOCKETS: usize = 1_000_000;
/// Maximum size of a variable that is one lock, in bytes. In a larger one, several locks may lie
/// side by side, so a place in it is shown with its distance from the start.
const ONE_LOCK: u64 = 64;
/// The value for which a mutex of glibc waits: locked, with waiting threads.
const CONTENDED: u32 = 2;

/// Knows what the threads of a process wait for.
#[derive(Debug)]
pub(super) struct Names {
    addresses: Addresses,
    threads: Threads,
    /// The name of each descriptor, since the last sample.
    descriptors: HashMap<u64, String>,
    /// What the function at a return address waits for.
    functions: HashMap<u64, Option<(Kind, bool)>>,
    /// The peer of each socket, by its inode.
    sockets: HashMap<u64, String>,
}

/// The owner that was found, if it was found for a wait of this kind.
fn owner_of(kind: Kind, found: Purpose) -> Option<u32> {
    found.owner.filter(|_| found.kind.unwrap_or(Kind::Lock) == kind)
}

impl Names {
    pub(super) fn of(process: &Process) -> Self {
        Self {
            addresses: Addresses::of(process.pid),
            threads: Threads::default(),
            descriptors: HashMap::new(),
            functions: HashMap::new(),
            sockets: HashMap::new(),
        }
    }

    /// Begins a sample of these threads, each with its id in its own pid namespace and in our
    /// `/proc`. Descriptors may have been closed and opened since the last sample.
    pub(super) fn refresh(&mut self, ids: &[(u32, u32)]) {
        self.threads = Threads::new(ids);
        self.addresses.refresh();
        self.descriptors.clear();
        if self.functions.len() > MOST {
            self.functions.clear();
        }
        if self.sockets.len() > MOST_SOCKETS {
            self.sockets.clear();
        }
    }

    /// A wait that continues in a call. A lock may have another owner now.
    pub(super) fn renew(&self, process: &Process, wait: Wait, call: Option<&Call>) -> Wait {
        match call {
            Some(Call::In { number: libc::SYS_futex, arguments, .. }) => {
                let found = futex::purpose(process, arguments, &self.threads);
                Wait { owner: owner_of(wait.reason.kind, found), ..wait }
            }
            _ => wait,
        }
    }

    /// The wait of a thread that is off the CPU in a call. Without a call, the kernel's function
    /// shows the kind.
    pub(super) fn wait(&mut self, process: &Process, tid: u32, call: Option<&Call>) -> Wait {
        let Some(Call::In { number, arguments, stack, code }) = call else {
            return match call {
                // For a page, outside any system call.
                Some(_) => plain(Kind::PageFault, ""),
                None => by_kernel(process, tid, None),
            };
        };
        match calls::of_call(*number) {
            None => by_kernel(process, tid, Some(*number)),
            Some((kind, Detail::None)) => plain(kind, ""),
            Some((kind, Detail::Descriptor)) => {
                plain(kind, &self.descriptor(process, arguments[0]))
            }
            Some((kind, Detail::Poll)) => plain(kind, &self.polled(process, *arguments)),
            Some((_, Detail::Futex)) => self.futex(process, arguments, [*code, *stack]),
        }
    }

    fn futex(&mut self, process: &Process, arguments: &[u64; 6], at: [u64; 2]) -> Wait {
        let futex = arguments[0];
        let found = futex::purpose(process, arguments, &self.threads);
        let Purpose { kind, owner } = found;
        // A mutex and a condition call with the same arguments, so the stack decides.
        let (kind, has_several) = match kind {
            Some(Kind::Join) => self.known_by_stack(process, at).unwrap_or((Kind::Join, false)),
            Some(kind) => (kind, false),
            None => match (self.known_by_stack(process, at), owner) {
                // `pthread_cond_wait` locks its mutex again in the end: a lock waits for this value.
                (Some((Kind::Condition, _)), Some(_)) if arguments[2] as u32 == CONTENDED => {
                    (Kind::Lock, false)
                }
                (Some(known), _) => known,
                (None, Some(_)) => (Kind::Lock, false),
                (None, None) => (Kind::Futex, false),
            },
        };
        let is_timed = futex::is_timed(arguments);
        if kind == Kind::Join {
            let name = owner.map(|tid| process.name(tid)).unwrap_or_default();
            return Wait { owner, is_timed, ..plain(kind, &name) };
        }
        let owner = owner_of(kind, found);
        let (name, address) = self.variable(futex, has_several);
        Wait { address, owner, is_timed, ..plain(kind, &name) }
    }

    /// What the code and the stack show: the innermost address that leads into a function of a known
    /// purpose. A word that an earlier call left on the stack may be found first; that is rare,
    /// because the frames of the waiting functions lie at the start.
    fn known_by_stack(
        &mut self,
        process: &Process,
        [code, stack]: [u64; 2],
    ) -> Option<(Kind, bool)> {
        let mut bytes = vec![0; STACK];
        // The stack may end within these bytes.
        while !process.memory(stack, &mut bytes) {
            bytes.truncate(bytes.len() / 2);
            if bytes.len() < size_of::<u64>() {
                return None;
            }
        }
        let words = bytes.chunks_exact(size_of::<u64>());
        let words = words.filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?)));
        for address in [code].into_iter().chain(words) {
            if !self.addresses.is_code(address) {
                continue;
            }
            let addresses = &mut self.addresses;
            let found = self.functions.entry(address).or_insert_with(|| {
                // A call is before its return address.
                futex::known_function(&addresses.function(address.wrapping_sub(1))?)
            });
            if found.is_some() {
                return *found;
            }
        }
        None
    }

    /// The name of the variable at an address, and the address to identify it by. Without a name,
    /// both are the address. A small variable with several futexes has one name for all of them.
    fn variable(&mut self, address: u64, has_several: bool) -> (String, u64) {
        match self.addresses.variable(address) {
            Some((name, distance, bytes)) if has_several && bytes <= ONE_LOCK => {
                (name, address - distance)
            }
            Some((name, 0, _)) => (name, address),
            Some((name, distance, _)) => (format!("{name}+{distance:#x}"), address),
            None => (format!("{address:#x}"), address),
        }
    }

    /// The file, socket or other object of a descriptor.
    fn descriptor(&mut self, process: &Process, descriptor: u64) -> String {
        // The kernel takes the lower half of the argument.
        let descriptor = descriptor & u64::from(u32::MAX);
        if let Some(known) = self.descriptors.get(&descriptor) {
            return known.clone();
        }
        let link = fs::read_link(process.file(&format!("fd/{descriptor}"))).unwrap_or_default();
        let link = link.to_string_lossy();
        let name = match inode(&link) {
            Some(("socket", inode)) => self.socket(process, inode),
            Some((kind, _)) => kind.to_owned(),
            None => match link.strip_prefix("anon_inode:") {
                Some(kind) => kind.trim_matches(['[', ']']).to_owned(),
                None => link.into_owned(),
            },
        };
        self.descriptors.insert(descriptor, name.clone());
        name
    }

    /// The only descriptor of a call that polls; else their number.
    fn polled(&mut self, process: &Process, [address, count, ..]: [u64; 6]) -> String {
        match count {
            0 => String::new(),
            1 => match process.words::<1>(address) {
                Some([descriptor]) => self.descriptor(process, u64::from(descriptor)),
                None => String::new(),
            },
            count => format!("{count} descriptors"),
        }
    }

    /// The protocol and peer of a socket.
    fn socket(&mut self, process: &Process, inode: u64) -> String {
        if let Some(known) = self.sockets.get(&inode) {
            return known.clone();
        }
        for (protocol, file) in
            [("tcp", "net/tcp"), ("tcp", "net/tcp6"), ("udp", "net/udp"), ("udp", "net/udp6")]
        {
            let text = text_of(&process.file(file)).unwrap_or_default();
            for line in text.lines().skip(1) {
                if let Some((name, inode)) = peer(line) {
                    self.sockets.insert(inode, format!("{protocol} {name}"));
                }
            }
        }
        let text = text_of(&process.file("net/unix")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let mut words = line.split_ascii_whitespace().skip(6);
            let Some(inode) = words.next().and_then(|inode| inode.parse().ok()) else { continue };
            let path = words.next().map(|path| format!(" {path}"));
            self.sockets.insert(inode, format!("unix{}", path.unwrap_or_default()));
        }
        self.sockets.entry(inode).or_insert_with(|| "socket".to_owned()).clone()
    }
}

/// A wait for something without an address. The detail comes from another process, which may have
/// put control characters into it.
pub(super) fn plain(kind: Kind, detail: &str) -> Wait {
    let reason = Rc::new(Reason { kind, detail: clean(detail).into_owned() });
    Wait { reason, address: 0, owner: None, is_timed: false }
}

/// The wait of a thread by the function of the kernel, for a call of an unknown kind or one that
/// may not be read.
fn by_kernel(process: &Process, tid: u32, number: Option<i64>) -> Wait {
    let function = process.kernel_function(tid);
    match (calls::of_kernel_function(&function), number) {
        (Some(kind), _) => plain(kind, ""),
        (None, Some(number)) if function.is_empty() => {
            plain(Kind::Other, &format!("system call {number}"))
        }
        (None, _) => plain(Kind::Other, &function),
    }
}

/// The kind and the inode of a link such as `socket:[123]`.
fn inode(link: &str) -> Option<(&str, u64)> {
    // A path may contain anything.
    let (kind, rest) = link.split_once(":[").filter(|_| !link.starts_with('/'))?;
    Some((kind, rest.strip_suffix(']')?.parse().ok()?))
}

/// The peer of a socket and the socket's inode, from a line of `/proc/PID/net/tcp`. Without a peer,
/// the own address.
fn peer(line: &str) -> Option<(String, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (own, peer) = (words.nth(1)?, words.next()?);
    let inode = words.nth(6)?.parse().ok()?;
    let peer = address(peer)?;
    let shown = if peer.ends_with(":0") { address(own)? } else { peer };
    Some((shown, inode))
}

/// An address such as `0100007F:1F90`: words of 32 bits in the processor's order, and a port.
fn address(text: &str) -> Option<String> {
    let (host, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for word in host.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let mut shown = String::new();
    match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => write!(shown, "{}:{port}", std::net::Ipv4Addr::from(four)).ok()?,
        Err(_) => {
            let bytes = <[u8; 16]>::try_from(bytes.as_slice()).ok()?;
            let host = std::net::Ipv6Addr::from(bytes);
            match host.to_ipv4_mapped() {
                Some(host) => write!(shown, "{host}:{port}").ok()?,
                None => write!(shown, "[{host}]:{port}").ok()?,
            }
        }
    }
    Some(shown)
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_named_by_their_peers() {
        let line = "   0: 0100007F:1F90 0200000A:1538 01 00000000:00000000 00:00000000 00000000 \
                    1000 0 4242 1 0000000000000000";
        assert_eq!(peer(line), Some(("10.0.0.2:5432".into(), 4242)));
        let listens = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 \
                       1000 0 4243 1 0000000000000000";
        assert_eq!(peer(listens), Some(("127.0.0.1:8080".into(), 4243)));
        assert_eq!(address("00000000000000000000000001000000:0050").as_deref(), Some("[::1]:80"));
        assert_eq!(peer("nonsense"), None);
        assert_eq!(inode("socket:[12]"), Some(("socket", 12)));
        assert_eq!(inode("/dev/null"), None);
        assert_eq!(inode("/tmp/socket:[12]"), None);
    }
}
