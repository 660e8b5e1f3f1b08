//! Reads hostile segments in a process of its own, so that a crash of any kind ends this process
//! and not the test's. It limits the memory and the CPU time of each poll.
//!
//! ```text
//! hostile mutations COPY FIRST COUNT FORMS     change a segment, read it, change it back
//! hostile lengths COPY STEP                    cut an object, before and while it is mapped
//! hostile files FILE STEP                      cut a file at each STEPth byte
//! hostile headers COPY COUNT                   put the words of the header in another order
//! ```
//!
//! The segment is copied into a real shared-memory object, and a beacon in `PFP_DIR` shows it to
//! viewers.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pfp_model::Model;
use pfp_read::snapshot::ProcessState;
use pfp_read::source::{self, Candidate, Source};
use pfp_shm_layout::beacon::{Beacon, Info};
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::geometry::{BLOCK, PAGE};
use pfp_shm_layout::object::{self, Object};
use pfp_shm_layout::segment::Segment;
use pfp_tests::hostile::{Memory, look_at, look_at_file, see_all};
use pfp_tests::os::thread_cpu;
use pfp_tests::random::Random;
use pfp_tests::script::say;

/// Maximum memory of a poll, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// Maximum CPU time of a poll: ten times the normal maximum, with room for a slow machine.
const LONGEST: Duration = Duration::from_secs(1);

/// The system's allocator, with counters.
struct Counted;

/// Bytes allocated now, and their maximum since the current poll began.
static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator with unchanged arguments.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(held, Relaxed);
        // SAFETY: the caller's guarantees are those that `System` requires, and the arguments are
        // unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's guarantees are those that `System` requires, and the arguments are
        // unchanged.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

/// The cost of all polls so far.
#[derive(Default)]
struct Cost {
    polls: u64,
    longest: Duration,
    most_bytes: usize,
}

impl Cost {
    fn of<R>(&mut self, what: impl FnOnce() -> R) -> R {
        let (held, before) = (HELD.load(Relaxed), thread_cpu());
        PEAK.store(held, Relaxed);
        let result = what();
        let (time, bytes) = (thread_cpu() - before, PEAK.load(Relaxed) - held);
        assert!(bytes <= MAX_BYTES, "a poll took {bytes} bytes");
        assert!(time <= LONGEST, "a poll took {time:?} of a processor");
        self.polls += 1;
        self.longest = self.longest.max(time);
        self.most_bytes = self.most_bytes.max(bytes);
        result
    }

    fn say(&self) {
        say("polls", &[&self.polls, &self.longest.as_micros(), &self.most_bytes]);
    }
}

/// A segment in a real object, which viewers can find.
struct Stand {
    object: Object,
    original: Vec<u8>,
    candidate: Candidate,
    beacon: Option<Box<Beacon>>,
}

impl Stand {
    fn new(copy: &Path) -> Self {
        let original = std::fs::read(copy).expect("there is a copy");
        let (segment, _) = Segment::from_copy(&original).expect("it is one of a segment");
        // The object has the size that the program gave it, with nothing after the last block in
        // use.
        let geometry = segment.geometry();
        let pool = geometry.len() - geometry.blocks_present() * BLOCK;
        let len = pool + geometry.blocks() * BLOCK;
        let object = Object::create(len).expect("there is room");
        let info = Info::of_this_process(*object.name(), "hostile").expect("there is memory");
        let directory = Directory::for_this_process().expect("there is a directory");
        let beacon = Beacon::lit(&directory, &info).expect("a beacon can be lit");
        let candidate = Candidate {
            segment_id: object.name().hex().to_owned(),
            state: ProcessState::Running,
            ..Candidate::default()
        };
        let stand = Self { object, original, candidate, beacon: Some(beacon) };
        stand.restore(0);
        stand
    }

    /// The word of the object at an offset.
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.object.len());
        // SAFETY: the word is aligned and within the mapping, which lives as long as `self`; all
        // access is atomic.
        unsafe { &*self.object.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Restores the original bytes from an offset on.
    fn restore(&self, from: usize) {
        for at in (from..self.original.len() / 8 * 8).step_by(8) {
            self.word(at).store(self.original_word(at), Relaxed);
        }
    }

    fn original_word(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        let rest = &self.original[at.min(self.original.len())..];
        let len = rest.len().min(8);
        bytes[..len].copy_from_slice(&rest[..len]);
        u64::from_le_bytes(bytes)
    }

    fn attach(&self, cost: &mut Cost) -> Option<Box<dyn Source>> {
        cost.of(|| source::attach(&self.candidate)).ok()
    }

    /// Shortens the object, or extends it.
    fn set_len(&self, len: usize) {
        let path = format!("/dev/shm{}", self.object.name());
        let file = std::fs::OpenOptions::new().write(true).open(path).expect("it is ours");
        file.set_len(len as u64).expect("there is room");
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let _ = object::unlink(self.object.name());
        if let Some(beacon) = self.beacon.take() {
            let _ = beacon.extinguish();
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = |at: usize| Path::new(arguments.get(at).expect("an argument is a file"));
    let number = |at: usize| -> u64 {
        let argument = arguments.get(at).and_then(|argument| argument.parse().ok());
        argument.unwrap_or_else(|| panic!("argument {at} must be a number"))
    };
    match arguments.first().map_or("", String::as_str) {
        "mutations" => mutations(&Stand::new(path(1)), number(2), number(3), number(4)),
        "lengths" => lengths(&Stand::new(path(1)), number(2) as usize),
        "files" => files(path(1), number(2) as usize),
        "headers" => headers(&Stand::new(path(1)), number(2)),
        other => panic!("there is no part {other:?}"),
    }
    say("done", &[]);
}

// ---- mutations ----

/// Changes a segment, word by word.
struct Mutation(Vec<(usize, u64)>);

impl Mutation {
    fn new(random: &mut Random, stand: &Stand, places: &Places) -> Self {
        let mut words = Vec::new();
        match random.below(8) {
            // A block of zeros, ones, noise, or words from elsewhere.
            0 => {
                let len = [64, 256, 512, PAGE, BLOCK][random.below(5)];
                let to = places.any(random) / len * len;
                let from = places.any(random) / len * len;
                let kind = random.below(4);
                for offset in (0..len).step_by(8) {
                    let word = match kind {
                        0 => 0,
                        1 => u64::MAX,
                        2 => random.word(),
                        _ => stand.original_word(from + offset),
                    };
                    words.push((to + offset, word));
                }
            }
            // Single bytes.
            1 | 2 => {
                for _ in 0..=random.below(8) {
                    let at = places.any(random);
                    let shift = 8 * random.below(8);
                    let byte = [0, 1, 0x1b, 0x7f, 0x80, 0xff, random.word() & 0xff];
                    let byte = byte[random.below(byte.len())];
                    words.push((at, stand.original_word(at) & !(0xff << shift) | byte << shift));
                }
            }
            // Boundary values, offsets, and words from elsewhere.
            _ => {
                for _ in 0..=random.below(12) {
                    let at = places.any(random);
                    let word = match random.below(6) {
                        // Blocks, lanes and points have small numbers.
                        5 => random.below(40) as u64,
                        0 => random.word(),
                        1 => random.below(stand.original.len()) as u64 / 256,
                        2 => stand.original_word(places.any(random)),
                        3 => stand.original_word(at).wrapping_add(random.edge()),
                        _ => random.edge(),
                    };
                    words.push((at, word));
                }
            }
        }
        words.retain(|(at, _)| at + 8 <= stand.object.len());
        Self(words)
    }

    fn apply(&self, stand: &Stand, file: &Memory) {
        for &(at, word) in &self.0 {
            stand.word(at).store(word, Relaxed);
            if at + 8 <= stand.original.len() {
                file.write(at, &word.to_le_bytes()).expect("memory can be written to");
            }
        }
    }

    fn undo(&self, stand: &Stand, file: &Memory) {
        for &(at, _) in &self.0 {
            let word = stand.original_word(at);
            stand.word(at).store(word, Relaxed);
            if at + 8 <= stand.original.len() {
                file.write(at, &word.to_le_bytes()).expect("memory can be written to");
            }
        }
    }
}

/// Offsets of words whose change matters, one list for each section. A mutation first chooses a
/// section, so the few words of the header are changed as often as the many of a large section.
struct Places(Vec<Vec<usize>>);

impl Places {
    fn new(stand: &Stand) -> Self {
        let (segment, _) = Segment::from_copy(&stand.original).expect("it was one");
        let geometry = segment.geometry();
        let control = geometry.control_pages();
        let lane = segment.lane(0).expect("there is one");
        let directory = std::ptr::from_ref(lane).addr() - segment.base().addr();
        let pool = segment.block_offset(1).map_or(stand.original.len(), |at| at - BLOCK);
        let strings = control.end + geometry.points() * 64;
        let words = |from: usize, to: usize| -> Vec<usize> {
            let to = to.min(stand.original.len() / 8 * 8);
            let tells = |at: &usize| stand.original_word(*at) != 0 || at.is_multiple_of(1016);
            (from..to).step_by(8).filter(tells).collect()
        };
        let cells = |from: usize| -> Vec<usize> {
            // The first words of a block of cells are its links; blocks of a ring have no links.
            (from..stand.original.len() / 8 * 8)
                .step_by(8)
                .filter(|at| at % BLOCK < 1024 && stand.original_word(*at) != 0)
                .collect()
        };
        let mut sections = vec![
            words(0, 64),
            words(64, PAGE),
            words(PAGE, 2 * PAGE),
            words(PAGE, 2 * PAGE),
            words(control.start, control.end),
            words(control.end, strings),
            words(strings, directory),
            words(directory, pool),
            words(directory, pool),
            cells(pool),
            words(pool, stand.original.len()),
            words(pool, stand.original.len()),
        ];
        sections.retain(|section| !section.is_empty());
        Self(sections)
    }

    fn any(&self, random: &mut Random) -> usize {
        let section = &self.0[random.below(self.0.len())];
        section[random.below(section.len())]
    }
}

/// Reads each changed segment as a segment of a running process and as a file. For every `forms`th
/// seed, the figures are also written in every export format, and for a quarter of these seeds they
/// are shown on every screen.
fn mutations(stand: &Stand, first: u64, count: u64, forms: u64) {
    let places = Places::new(stand);
    let file = Memory::new(&stand.original).expect("there is memory");
    let (mut cost, mut of_files) = (Cost::default(), Cost::default());
    let (mut attached, mut opened, mut formed, mut seen) = (0_u64, 0_u64, 0_u64, 0_u64);
    for seed in first..first + count {
        // After a crash, this line is the last one and names the seed.
        say("seed", &[&seed]);
        let mut random = Random::new(seed);
        let mutation = Mutation::new(&mut random, stand, &places);
        // Half of the seeds change the segment while a viewer is attached.
        let watching = if seed % 2 == 0 { stand.attach(&mut cost) } else { None };
        let watching = watching.map(|mut source| {
            let _ = cost.of(|| source.poll());
            source
        });
        mutation.apply(stand, &file);
        if let Some(mut source) = watching.or_else(|| stand.attach(&mut cost)) {
            attached += 1;
            let mut model = Model::default();
            for _ in 0..2 {
                if let Ok(snapshot) = cost.of(|| source.poll()) {
                    model.fold(snapshot);
                }
            }
            if seed % forms == 0 {
                look_at(source.as_mut());
                formed += 1;
            }
            if seed % (4 * forms) == 0 {
                see_all(source);
                seen += 1;
            }
        }
        opened += u64::from(of_files.of(|| source::open(&file.path())).is_ok());
        if seed % forms == forms / 2 {
            formed += u64::from(look_at_file(&file, seed % (4 * forms) == forms / 2));
        }
        mutation.undo(stand, &file);
    }
    say("looked", &[&count, &attached, &opened, &formed, &seen]);
    cost.say();
}

// ---- lengths ----

/// Shortens the object to each multiple of `step` bytes, and to page boundaries: before a viewer
/// attaches, and while one is attached.
fn lengths(stand: &Stand, step: usize) {
    let whole = stand.object.len();
    let mut cost = Cost::default();
    let mut all: Vec<usize> = (0..stand.original.len()).step_by(step).collect();
    let pages = (0..=stand.original.len()).step_by(PAGE);
    all.extend(pages.flat_map(|at| [at.saturating_sub(1), at, at + 1]));
    all.extend([whole / 2, whole - PAGE, whole - 1]);
    let (mut tried, mut refused) = (0_u64, 0_u64);
    for len in all {
        say("length", &[&len]);
        let mut watching = stand.attach(&mut cost).expect("it is whole");
        cost.of(|| watching.poll()).expect("it is whole");
        // The viewer detects the missing memory only when it touches that memory.
        stand.set_len(len);
        let start = Instant::now();
        let poll = cost.of(|| watching.poll());
        assert!(poll.is_err(), "a segment of {len} bytes was shown as whole");
        look_at(watching.as_mut());
        see_all(watching);
        refused += u64::from(stand.attach(&mut cost).is_none());
        assert!(start.elapsed() < Duration::from_secs(60), "{len} bytes: it hangs");
        stand.set_len(whole);
        stand.restore(len / PAGE * PAGE);
        tried += 1;
    }
    assert_eq!(refused, tried, "a segment was watched that is not whole");
    say("looked", &[&tried, &refused]);
    cost.say();
}

/// Shortens a file to each multiple of `step` bytes.
fn files(path: &Path, step: usize) {
    let whole = std::fs::read(path).expect("there is a file");
    let mut cost = Cost::default();
    let (mut tried, mut shown) = (0_u64, 0_u64);
    // From the longest to the shortest, since the bytes that are cut off are lost.
    let file = Memory::new(&whole).expect("there is memory");
    for len in (0..whole.len()).rev().step_by(step) {
        file.set_len(len).expect("a file can be cut");
        let opened = cost.of(|| source::open(&file.path()));
        tried += 1;
        if opened.is_ok() {
            shown += 1;
            // A recording shows every picture that is complete.
            if shown % 64 == 1 {
                say("length", &[&len]);
                look_at_file(&file, false);
            }
        }
    }
    say("looked", &[&tried, &shown]);
    cost.say();
}

// ---- headers ----

/// Permutes words of the header.
fn headers(stand: &Stand, count: u64) {
    const WORDS: usize = 17;
    let mut cost = Cost::default();
    let mut shown = 0_u64;
    for seed in 0..count {
        say("seed", &[&seed]);
        let mut random = Random::new(seed);
        let mut order: Vec<usize> = (0..WORDS).collect();
        // Some permutations keep the magic, or magic and version, in place.
        let from = (seed % 3) as usize;
        for place in (from + 1..WORDS).rev() {
            order.swap(place, from + random.below(place + 1 - from));
        }
        for (place, &other) in order.iter().enumerate() {
            stand.word(place * 8).store(stand.original_word(other * 8), Relaxed);
        }
        let found = stand.attach(&mut cost);
        let well = order[..8].iter().enumerate().all(|(place, &other)| {
            stand.original_word(place * 8) == stand.original_word(other * 8)
        });
        // The first eight words of the header locate everything else.
        assert_eq!(found.is_some(), well, "seed {seed}: {order:?}");
        if let Some(mut source) = found {
            look_at(source.as_mut());
            shown += 1;
        }
        stand.restore_header();
    }
    say("looked", &[&count, &shown]);
    cost.say();
}

impl Stand {
    fn restore_header(&self) {
        for at in (0..PAGE).step_by(8) {
            self.word(at).store(self.original_word(at), Relaxed);
        }
    }
}
