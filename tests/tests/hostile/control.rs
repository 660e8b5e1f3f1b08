//! A hostile viewer: it writes random bytes to the control words and the times of resets, the only
//! bytes that a viewer may write, while the program measures. The program's output and exit status
//! do not change, the counts of points that stayed on are exact, and the program writes only to its
//! own memory.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pfp_shm_layout::geometry::{BLOCK, CHUNK, PAGE, RING_BLOCKS};
use pfp_shm_layout::histogram::PARTS;
use pfp_shm_layout::reader::Picture;
use pfp_shm_layout::segment::Segment;
use pfp_tests::place::Place;
use pfp_tests::random::Random;
use pfp_tests::target::Said;
use pfp_tests::watch::{Watch, cells, id};
use pfp_tests::{figure, size};

const ATTACKED: &str = env!("CARGO_BIN_EXE_attacked");
const THREADS: u64 = 3;
/// Seconds for which random bytes are written.
const SECONDS: u64 = size(2, 60);
/// Number of rounds in which each word is written once and then stays unchanged.
const ROUNDS: u64 = size(50, 2_000);
/// Number of calls of each point in such a round.
const CALLS: u64 = 100;
/// Number of the program's points, including the calibration's.
const POINTS: u64 = 15;
/// Size of a point's entry in the table, in bytes.
const ENTRY: usize = size_of::<pfp_shm_layout::point::PointEntry>();
/// The bit of a control word that enables its point.
const ENABLED: u64 = 1;

/// The changes allowed to a point's control word.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    LeftAlone,
    /// Any change, but the point stays on.
    StaysOn,
    Anything,
}

impl Fate {
    fn of(picture: &Picture, point: usize) -> Self {
        let name = picture.points.iter().find(|known| known.id as usize == point);
        match name.map(|known| known.name.as_str()) {
            Some(name) if name.starts_with("alone ") => Self::LeftAlone,
            Some(name) if name.starts_with("on ") || name == "numbered" => Self::StaysOn,
            _ => Self::Anything,
        }
    }
}

/// Overwrites the control words.
struct Attacker<'a> {
    words: Vec<&'a AtomicU64>,
    /// The times at which points were reset.
    times: Vec<&'a AtomicU64>,
    fates: Vec<Fate>,
    /// Control words of the program's points, which are overwritten most often.
    looked_at: Vec<usize>,
    random: Random,
    written: u64,
}

impl<'a> Attacker<'a> {
    fn new(segment: &'a Segment, picture: &Picture) -> Self {
        let words: Vec<_> = (0..).map_while(|point| segment.control(point)).collect();
        let times: Vec<_> = (0..).map_while(|point| segment.reset_time(point)).collect();
        let pages = segment.geometry().control_pages();
        let len = (words.len() + times.len()) * 8;
        assert!(len <= pages.len() && pages.len() - len < PAGE);
        let fates: Vec<_> = (0..words.len()).map(|point| Fate::of(picture, point)).collect();
        let known = picture.points.iter().map(|point| point.id as usize);
        let looked_at = known.filter(|&point| fates[point] != Fate::LeftAlone).collect();
        Self { words, times, fates, looked_at, random: Random::new(7), written: 0 }
    }

    /// Overwrites a word, or one byte of it.
    fn write(&mut self) {
        let random = &mut self.random;
        let point = match random.below(8) {
            0 => random.below(self.words.len()),
            _ => self.looked_at[random.below(self.looked_at.len())],
        };
        if random.below(4) == 0 {
            let time = self.times[random.below(self.times.len())];
            time.store(if random.below(2) == 0 { random.edge() } else { random.word() }, Relaxed);
            self.times[point].store(random.word(), Relaxed);
        }
        let word = self.words[point];
        let new = match random.below(4) {
            0 => random.edge(),
            1 => {
                let shift = 8 * random.below(8);
                word.load(Relaxed) & !(0xff << shift) | (random.word() & 0xff) << shift
            }
            _ => random.word(),
        };
        match self.fates[point] {
            Fate::LeftAlone => return,
            Fate::StaysOn => word.store(new | ENABLED, Relaxed),
            Fate::Anything => word.store(new, Relaxed),
        }
        self.written += 1;
    }

    fn all(&self) -> Vec<u64> {
        self.words.iter().chain(&self.times).map(|word| word.load(Relaxed)).collect()
    }
}

/// Measurements of a point since the program began, over all resets.
fn lifetime(picture: &Picture, name: &str) -> u64 {
    cells(picture, id(picture, name)).map(|cell| cell.lifetime_count).sum()
}

/// The program's own counts of calls, by name of the point.
fn calls(said: &Said) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for kind in ["alone", "on", "any"] {
        let lines = said.all::<u64>(kind);
        all.extend(lines.iter().map(|line| (format!("{kind} {}", line[0]), line[1])));
    }
    all.push(("numbered".to_owned(), said.one("numbered")));
    all.push(("numbered any".to_owned(), said.one("numbered_any")));
    all
}

/// Computes the program's sum again.
fn sum(number: u64, rounds: u64) -> u64 {
    (0..rounds)
        .fold(number, |sum, round| sum.rotate_left(7) ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The parts that a program never writes while it only measures: the header, the table of points
/// with all texts, and the unused blocks.
fn quiet_parts(copy: &[u8], segment: &Segment) -> Vec<Range<usize>> {
    let geometry = segment.geometry();
    let table = geometry.control_pages().end;
    let lanes = segment.lane(0).expect("there is one");
    let directory = std::ptr::from_ref(lanes).addr() - segment.base().addr();
    let used = usize::try_from(segment.counters().lanes_used.load(Relaxed)).expect("few");
    let behind = segment.counters().blocks_used.load(Relaxed);
    let end = segment.block_offset(behind).expect("not all are used");
    let unused = directory + used * 256..directory + geometry.lanes() * 256;
    // Of a point's entry, the sixth word counts slow calls, and a reset points the last word to the
    // second shared cell.
    let points = geometry.points();
    let starts = (0..points).map(|at| table + at * ENTRY);
    let entries = starts.flat_map(|start| [start..start + 40, start + 48..start + ENTRY - 8]);
    let rest = table + points * ENTRY..directory;
    let others = [0..PAGE, rest, unused, end.min(copy.len())..copy.len()];
    entries.chain(others).collect()
}

#[test]
fn random_control_words_harm_neither_the_program_nor_its_figures() {
    attack("a lane each", 128);
}

#[test]
fn random_control_words_do_not_harm_shared_lanes() {
    attack("a lane for two, the others share one", 2);
}

fn attack(what: &str, lanes: u64) {
    let place = Place::new();
    let arguments = [&*THREADS.to_string()];
    let mut target = place.start_with(ATTACKED, &arguments, "PFP_LANES", lanes.to_string());
    target.reach("ready");
    let mut watch = Watch::attach(&place, &target);
    let other = Watch::attach(&place, &target);
    let segment = other.reader().segment();
    let mut attacker = Attacker::new(segment, watch.poll());
    assert_eq!(watch.poll().points.len() as u64, POINTS);
    let before = segment.to_copy().expect("there is memory");

    // The storm of writes, with a viewer that polls.
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let mut polls = 0_u64;
    while Instant::now() < end {
        for _ in 0..2_000 {
            attacker.write();
        }
        let picture = watch.poll();
        assert!(picture.cells.len() as u64 <= POINTS * (THREADS + 1), "{}", picture.cells.len());
        polls += 1;
    }
    target.go();
    target.reach("calm");

    // The program wrote to no control word, and only to its own parts.
    let left = attacker.all();
    let after = segment.to_copy().expect("there is memory");
    for part in quiet_parts(&after, segment) {
        let (before, after) = (&before[part.start.min(before.len())..], &after[part.clone()]);
        let before = &before[..before.len().min(after.len())];
        assert!(before == &after[..before.len()], "{part:?} was written to");
        assert!(after[before.len()..].iter().all(|&byte| byte == 0), "{part:?} was written to");
    }
    assert_eq!(attacker.all(), left, "the program wrote a control word");
    // The memory in use is bounded, however many resets there are. A lane needs a ring, a partly
    // used block, and for each point a cell with all parts of its histogram; a shared lane needs
    // two cells for each point.
    let (lanes, each) = (THREADS + 2, POINTS * (2 + PARTS as u64) * CHUNK as u64 / BLOCK as u64);
    let most = 1 + lanes * (RING_BLOCKS + 2 + each + 1);
    assert!(watch.blocks_used() <= most, "{} blocks, more than {most}", watch.blocks_used());

    // Points that stayed on have exact counts, and no point counts more than its calls.
    let said = target.said().clone();
    let mut exact = 0;
    let fresh = Watch::attach(&place, &target).poll().clone();
    for (whose, picture) in [("one that looked on", watch.poll()), ("a new one", &fresh)] {
        let losses = &picture.losses;
        for (name, calls) in calls(&said) {
            let counted = lifetime(picture, &name);
            if name.contains("any") {
                assert!(counted <= calls, "{name}: {counted} of {calls}");
                assert!(counted > 0, "{name} was on by chance now and then");
            } else {
                assert_eq!(counted, calls, "{name}, as {whose} sees it; {losses:?}");
                exact += calls;
            }
        }
    }
    for line in said.all::<u64>("worked") {
        assert_eq!(line[2], sum(line[0], line[1]), "thread {} lost its way", line[0]);
    }

    // Then write one word at a time. While a word does not change, its point counts all calls or
    // none, depending only on the bit ENABLED.
    let any = ["any 0", "any 1", "any 2", "any 3", "numbered any"];
    let ids = any.map(|name| id(&fresh, name) as usize);
    let mut counts = any.map(|name| lifetime(&fresh, name));
    for round in 0..ROUNDS {
        for id in ids {
            attacker.words[id].store(attacker.random.word(), Relaxed);
        }
        target.tell(&CALLS.to_string());
        target.reach("used");
        let picture = watch.poll();
        for ((name, id), before) in any.iter().zip(ids).zip(&mut counts) {
            let word = attacker.words[id].load(Relaxed);
            let counted = lifetime(picture, name) - *before;
            let expected = if word & ENABLED == 0 { 0 } else { CALLS };
            assert_eq!(counted, expected, "{name} in round {round}, with the word {word:#x}");
            *before += counted;
        }
    }

    let ended = target.end();
    assert!(ended.status.success(), "{}: {}", ended.status, ended.errors);
    assert_eq!(ended.errors, "");
    figure(&format!(
        "hostile control, {what}: {SECONDS} s, {} random writes, {polls} polls beside them; {} calls of \
         points that were on, all counted; then {ROUNDS} words one by one, {} calls counted or not \
         as the word says",
        attacker.written,
        exact / 2,
        ROUNDS * CALLS * any.len() as u64,
    ));
}
