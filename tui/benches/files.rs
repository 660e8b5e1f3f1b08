//! Measures the time to write and to read a snapshot of 10,000 points and 64 threads, in each
//! format, by how many of the points each thread uses.
//!
//! `cargo bench -p pfp-top --bench files`; with `-- --quick`, fewer rounds.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pfp_read::files::atomic_file::write_file;
use pfp_read::files::json::{self, Existing};
use pfp_read::files::zstd_file;
use pfp_read::snapshot::Snapshot;
use pfp_read::source;
use pfp_shm_layout::cell::Measurement;
use pfp_shm_layout::control::{Change, Control};
use pfp_shm_layout::copy::{Dense, Note, SegmentCopy};
use pfp_shm_layout::geometry::{CELLS_PER_BLOCK, CHUNK, Config};
use pfp_shm_layout::header::Facts;
use pfp_shm_layout::histogram;
use pfp_shm_layout::segment::Segment;

const POINTS: usize = 10_000;
const THREADS: usize = 64;
/// Measurements of each cell, spread over three octaves.
const MEASUREMENTS: u64 = 40;

fn main() -> anyhow::Result<()> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let folder = tempfile::tempdir()?;
    println!(
        "{:<34} {:>8} {:>9} {:>9} {:>9}",
        "10,000 points, 64 threads", "cells", "MiB", "write ms", "read ms"
    );
    // The points that each thread uses: points of its own only; many of its own and some in common,
    // as in a typical program; all of them.
    let all = [POINTS / THREADS, 1_000, POINTS];
    for &each in if quick { &all[..2] } else { &all } {
        let rounds = if quick || each == POINTS { 3 } else { 11 };
        let segment = fill(each);
        let raw = folder.path().join("a.pfp");
        let copy = SegmentCopy::of(&segment)?;
        write_file(&raw, Existing::Replace, |file| copy.write(file, Some(&NOTE)))?;
        let snapshot = source::open(&raw)?.poll()?;
        assert_eq!(snapshot.cells.len(), each * THREADS);
        for (form, name) in [("JSON", "a.json"), ("JSON, .zst", "a.json.zst")] {
            let path = folder.path().join(name);
            let write = least(rounds, || Ok(json::write(&snapshot, &path, Existing::Replace)?))?;
            report(form, &snapshot, &path, write, rounds)?;
        }
        let write = least(rounds, || {
            let copy = SegmentCopy::of(&segment)?;
            Ok(write_file(&raw, Existing::Replace, |file| copy.write(file, Some(&NOTE)))?)
        })?;
        report("segment", &snapshot, &raw, write, rounds)?;
        let path = folder.path().join("a.pfp.zst");
        let write = least(rounds, || {
            let copy = SegmentCopy::of(&segment)?;
            Ok(write_file(&path, Existing::Replace, |file| {
                zstd_file::write(file, |out| copy.write(&mut Dense(out), Some(&NOTE)))
            })?)
        })?;
        report("segment, .zst", &snapshot, &path, write, rounds)?;
    }
    Ok(())
}

const NOTE: Note = Note { taken_unix_ns: 1, taken_monotonic_ns: 1, runs: true };

/// Reads the written file, and prints the times of writing and of reading.
fn report(
    form: &str,
    snapshot: &Snapshot,
    path: &Path,
    write: Duration,
    rounds: usize,
) -> anyhow::Result<()> {
    let read = least(rounds, || {
        let read = source::open(path)?.poll()?;
        assert_eq!(read.cells.len(), snapshot.cells.len());
        Ok(())
    })?;
    assert!(source::open(path)?.poll()?.cells == snapshot.cells, "{form}: other figures");
    let mib = std::fs::metadata(path)?.len() as f64 / f64::from(1 << 20);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let count = snapshot.cells.len();
    println!("{form:<34} {count:>8} {mib:>9.1} {:>9.1} {:>9.1}", ms(write), ms(read));
    Ok(())
}

/// The shortest of `rounds` runs: other work on the machine only makes a run longer.
fn least(rounds: usize, mut work: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let mut least = Duration::MAX;
    for _ in 0..rounds {
        let start = Instant::now();
        work()?;
        least = least.min(start.elapsed());
    }
    Ok(least)
}

/// A segment in which each thread has used `each` points: the first thread the first points, the
/// next thread the points that follow, and after the last point the first one again.
fn fill(each: usize) -> Segment {
    // One block for the cells, and up to four parts of a histogram for each cell.
    let blocks = THREADS * (each.div_ceil(CELLS_PER_BLOCK) + each.div_ceil(16) + 1) + 2;
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    let room = Config { points: 10_240, lanes: 64, blocks, ..Config::default() };
    let segment = Segment::in_private_memory(room, &Facts::default());
    let enabled = Control::default().with(Change::Enable);
    segment.counters().ticks_per_1000_s.store(2_600_000_000_000, Relaxed);
    for point in 0..POINTS {
        let name = format!("module_{}::function_{point}", point / 50);
        segment.enter_point(None, 0, &name, "src/somewhere/module.rs", point as u64);
        segment.control(point).expect("there is room").store(enabled.0, Relaxed);
    }
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut free = 0..0;
    for lane in 0..THREADS {
        let entry = segment.back_lane(lane).expect("there is room").expect("there is a lane");
        let generation = entry.claim().expect("nobody has it");
        entry.announce(generation, 100 + lane as u32, 0, format!("worker {lane}").as_bytes());
        let mut last = None;
        for number in 0..each {
            let point = (lane * each + number) % POINTS;
            if number % CELLS_PER_BLOCK == 0 {
                let block = segment.take_blocks(1).expect("there is room");
                match last.and_then(|last| segment.cell_block(last)) {
                    Some(before) => before.set_next(block),
                    None => entry.set_cells_block(block),
                }
                last = Some(block);
            }
            let block = segment.cell_block(last.unwrap_or(0)).expect("just taken");
            let cell = block.cell(number % CELLS_PER_BLOCK);
            cell.prepare(point as u32, enabled, generation);
            for n in 0..MEASUREMENTS {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // Most values are near one value; some are twice and four times as large.
                let ticks = (2_000 << [0, 0, 0, 1, 2][n as usize % 5]) + random % 256;
                let measured = Measurement { exclusive: ticks, inclusive: ticks, away: None };
                let (part, bucket) = histogram::locate(ticks);
                if cell.part(part) == 0 {
                    if free.is_empty() {
                        let block = segment.take_blocks(1).expect("there is room");
                        let first = segment.block_offset(block).expect("just taken") / CHUNK;
                        free = first..first + 64;
                    }
                    cell.set_part(part, free.next().unwrap_or_default() as u32);
                }
                let chunk = segment.chunk(cell.part(part)).expect("just taken");
                cell.record(measured, Some(&chunk.0[bucket]), 0);
            }
            block.set_used(number % CELLS_PER_BLOCK + 1);
        }
    }
    segment
}
