//! Model checks of the shared-memory protocols.
//!
//! The protocol files of `src/`, and the barrier file of pfp-timing, are compiled here a second
//! time, against the atomics of `sync.rs`. Each model in `models.rs` then runs a protocol in every
//! interleaving, with every stale value that the memory model allows, and states what must hold.
//! The last test turns this round: it weakens each named ordering in turn and requires that some
//! model fails. An ordering that no model needs fails the test, so every ordering in the source has
//! a reason that has been shown.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    clippy::undocumented_unsafe_blocks,
    reason = "these are parts of a library, and this is not its crate"
)]

#[path = "../../../probe/timing/src/members/barrier.rs"]
mod barrier;

#[path = "../../src/heap.rs"]
mod heap;
#[path = "../../src/layout"]
mod layout {
    pub(crate) mod allocs;
    pub(crate) mod amounts;
    pub(crate) mod black_box;
    pub(crate) mod calls;
    pub(crate) mod cell;
    pub(crate) mod chain;
    pub(crate) mod control;
    pub(crate) mod header;
    pub(crate) mod histogram;
    pub(crate) mod lane;
    pub(crate) mod point;
    pub(crate) mod ring;
    pub(crate) mod shared_cell;

    pub(crate) use crate::{geometry, segment};
}

pub(crate) use layout::{amounts, calls, cell, chain, control, header, lane, point, ring};

mod futex;
mod geometry;
mod models;
mod segment;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod stacks;
mod sync;

use std::cell::Cell;
use std::num::NonZero;
use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use models::MODELS;
use sync::Site;

/// Calls `work` for each item, on as many threads as there are CPUs; returns the results.
fn on_all_cpus<'a, T: Sync, R: Send>(
    items: &'a [T],
    work: impl Fn(&'a T) -> Option<R> + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let items = std::iter::from_fn(|| items.get(next.fetch_add(1, Relaxed)));
        items.filter_map(&work).collect::<Vec<R>>()
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

/// A model that has run, with its findings.
struct Checked<'a> {
    name: &'a str,
    model: fn(),
    holds: bool,
    took: Duration,
    /// The orderings that its run used.
    used: Vec<&'a Site>,
}

#[test]
fn every_protocol_holds_and_needs_every_named_ordering() {
    silence_expected_panics();
    // The sites that each model uses: a mutant is run only with the models that can detect it.
    let sites = sites();
    let mut checked = on_all_cpus(MODELS, |(name, model)| {
        let start = Instant::now();
        sync::forget_used();
        let holds = panic::catch_unwind(model).is_ok();
        let took = start.elapsed();
        println!("{name}: {took:.2?}");
        let used: Vec<&Site> = sites.iter().filter(|site| sync::was_used(site)).collect();
        Some(Checked { name, model: *model, holds, took, used })
    });
    let failed = checked.iter().filter(|model| !model.holds).map(|model| model.name);
    assert_eq!(failed.collect::<Vec<_>>(), [""; 0]);
    // The quick models run first.
    checked.sort_by_key(|model| model.took);
    let survivors = on_all_cpus(&sites, |site| {
        sync::weaken(Some(site.clone()));
        let mut models = checked.iter().filter(|model| model.used.contains(&site));
        let caught = models.find(|model| fails(model.model));
        sync::weaken(None);
        let Site { file, line, name } = site;
        match caught {
            Some(by) => {
                println!("{file}:{line} {name}: caught by {}", by.name);
                None
            }
            None => Some(format!("{file}:{line} {name}")),
        }
    });
    assert!(survivors.is_empty(), "no model needs {survivors:#?}");
}

thread_local! {
    static EXPECTS_PANIC: Cell<bool> = const { Cell::new(false) };
}

fn silence_expected_panics() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !EXPECTS_PANIC.get() {
            report(info);
        }
    }));
}

fn fails(model: fn()) -> bool {
    EXPECTS_PANIC.set(true);
    let result = panic::catch_unwind(model);
    EXPECTS_PANIC.set(false);
    result.is_err()
}

/// Every `ord!` and `fence_at!` of the sources, also of files that are not compiled here. No model
/// uses a site of such a file, so the test fails until the file is compiled here, too.
fn sites() -> Vec<Site> {
    let mut sites = Vec::new();
    let folders = ["src", "../probe/timing/src"];
    let mut paths = folders.map(|it| Path::new(env!("CARGO_MANIFEST_DIR")).join(it)).to_vec();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        for (index, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            for call in ["ord!(\"", "fence_at!(\""] {
                for (at, _) in line.match_indices(call) {
                    let name = line[at + call.len()..].split('"').next().unwrap().to_owned();
                    sites.push(Site { file: file.clone(), line: index as u32 + 1, name });
                }
            }
        }
    }
    sites.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    assert!(sites.len() > 20, "the sources are not where they were");
    sites
}
