//! The roofline: the limits of a machine, and how close a point comes to them.
//!
//! A region that does `f` operations on `b` bytes of memory has an arithmetic intensity of `f / b`.
//! The speed of the region is limited by the arithmetic units and by the bandwidth of its bytes:
//! its roof is `min(flops, intensity x bandwidth)`, operations per second. (S. Williams, A.
//! Waterman, D. Patterson: Roofline, CACM 52(4), 2009.)
//!
//! The ceilings are measured ([`measure`]), since no data sheet states this machine's clock rate
//! and the load by other programs. A point's rates are per second of its exclusive on-CPU time, so
//! the rates are for **one thread**. The roofs are for one thread, too: one roof for a thread that
//! runs alone, and one for a thread's share while all threads work at once.

pub mod columns;
mod kernels;
mod machine;
mod measure;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use measure::measure;

use pfp_read::files;
use pfp_read::files::atomic_file::{self, Existing};

/// The limits of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// The name of the processor.
    pub cpu: String,
    /// Time of the measurement, nanoseconds since the Unix epoch.
    pub taken_unix_ns: u64,
    /// The roof of one thread while the others are idle.
    pub alone: Roof,
    /// The roof of all threads together.
    pub together: Roof,
}

/// The ceilings of some threads together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Roof {
    /// Number of threads that worked at once.
    pub threads: usize,
    /// Bandwidths of the caches and of memory, the nearest first.
    pub bandwidths: Vec<Bandwidth>,
    /// Kinds of arithmetic, the slowest first.
    pub flops: Vec<Flops>,
}

/// The bandwidth of a cache or memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// `L1`, `L2`, `L3` or `memory`.
    pub level: String,
    /// Size of the data that each thread passes over repeatedly, bytes.
    pub working_set: u64,
    /// Bytes that the loop read and wrote, per second.
    pub bytes_per_second: f64,
}

/// The speed of a kind of arithmetic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flops {
    /// Kind of instructions.
    pub kind: String,
    /// Operations on numbers of 64 bits per second; a fused one counts twice.
    pub per_second: f64,
}

/// Maximum size of a file of ceilings, in bytes.
const MAX_BYTES: u64 = 1 << 20;

impl Ceilings {
    /// The usual file of saved ceilings: `$XDG_CACHE_HOME/pfp-top/ceilings.json`, or in `~/.cache`.
    #[must_use]
    pub fn usual_place() -> Option<PathBuf> {
        Some(files::folder("XDG_CACHE_HOME", ".cache")?.join("pfp-top/ceilings.json"))
    }

    /// Loads the saved ceilings, if they belong to this machine's processor.
    #[must_use]
    pub fn load(path: &Path) -> Option<Self> {
        let text = pfp_read::files::input::read(path, MAX_BYTES).ok()?;
        let kept: Self = serde_json::from_slice(&text).ok()?;
        (kept.cpu == machine::cpu() && kept.is_sound()).then_some(kept)
    }

    /// Saves the ceilings, replacing older ones.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let text = serde_json::to_vec_pretty(self)?;
        atomic_file::write(path, Existing::Replace, |out| out.write_all(&text))
    }

    /// Whether all of its values can be drawn.
    fn is_sound(&self) -> bool {
        [&self.alone, &self.together].into_iter().all(|roof| {
            let bandwidths = roof.bandwidths.iter().map(|bandwidth| bandwidth.bytes_per_second);
            let mut rates = bandwidths.chain(roof.flops.iter().map(|flops| flops.per_second));
            !roof.bandwidths.is_empty()
                && !roof.flops.is_empty()
                && rates.all(|rate| (1.0..1e21).contains(&rate))
        })
    }
}

impl Roof {
    /// A single thread's share of the roof.
    #[must_use]
    pub fn of_a_thread(&self) -> Self {
        let threads = self.threads.max(1) as f64;
        let mut share = self.clone();
        share.threads = 1;
        share.bandwidths.iter_mut().for_each(|bandwidth| bandwidth.bytes_per_second /= threads);
        share.flops.iter_mut().for_each(|flops| flops.per_second /= threads);
        share
    }

    /// Bytes per second from memory, 0 if not measured.
    #[must_use]
    pub fn memory(&self) -> f64 {
        self.bandwidths.last().map_or(0.0, |bandwidth| bandwidth.bytes_per_second)
    }

    /// The most operations per second, 0 if not measured.
    #[must_use]
    pub fn peak(&self) -> f64 {
        self.flops.last().map_or(0.0, |flops| flops.per_second)
    }

    /// The most operations per second at an intensity, in operations per byte from memory.
    #[must_use]
    pub fn at(&self, intensity: f64) -> f64 {
        self.peak().min(self.memory() * intensity)
    }

    /// The intensity from which on memory does not limit the speed.
    #[must_use]
    pub fn ridge(&self) -> f64 {
        self.peak() / self.memory()
    }
}

/// A point under the roof.
#[derive(Clone, Debug, PartialEq)]
pub struct Dot {
    /// Name of the point.
    pub label: String,
    /// Operations per byte.
    pub intensity: f64,
    /// Operations per second of exclusive on-CPU time.
    pub flops_per_second: f64,
    /// Seconds of exclusive on-CPU time.
    pub seconds: f64,
}

impl Dot {
    /// Bytes per second of exclusive on-CPU time.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.flops_per_second / self.intensity
    }

    /// The point's share of the roof; above 1 if its bytes come from a cache.
    #[must_use]
    pub fn share_of(&self, roof: &Roof) -> f64 {
        self.flops_per_second / roof.at(self.intensity)
    }

    /// The name of the lowest ceiling above the point. This ceiling limits the point. `None` if the
    /// point is above all measured arithmetic.
    #[must_use]
    pub fn limit<'a>(&self, roof: &'a Roof) -> Option<&'a str> {
        if self.flops_per_second > roof.peak() {
            return None;
        }
        let slants = roof.bandwidths.iter().map(|bandwidth| {
            (bandwidth.level.as_str(), bandwidth.bytes_per_second * self.intensity)
        });
        let flats = roof.flops.iter().map(|flops| (flops.kind.as_str(), flops.per_second));
        slants
            .chain(flats)
            .filter(|(_, ceiling)| *ceiling >= self.flops_per_second)
            .min_by(|(_, a), (_, b)| a.total_cmp(b))
            .map(|(name, _)| name)
    }
}

/// Made-up ceilings, for tests.
pub fn made_up_ceilings() -> Ceilings {
    let bandwidth = |level: &str, gigabytes: f64| Bandwidth {
        level: level.into(),
        working_set: 1 << 20,
        bytes_per_second: gigabytes * 1e9,
    };
    let flops = |kind: &str, giga: f64| Flops { kind: kind.into(), per_second: giga * 1e9 };
    let roof = |threads: usize, memory: f64| Roof {
        threads,
        bandwidths: vec![bandwidth("L1", 200.0 * threads as f64), bandwidth("memory", memory)],
        flops: vec![
            flops("scalar", 5.0 * threads as f64),
            flops("AVX2 FMA", 50.0 * threads as f64),
        ],
    };
    Ceilings {
        cpu: "a processor".into(),
        taken_unix_ns: 1_700_000_000_000_000_000,
        alone: roof(1, 20.0),
        together: roof(4, 40.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roof_is_slanted_up_to_its_ridge() {
        let Ceilings { alone, together, .. } = made_up_ceilings();
        assert_eq!((alone.memory(), alone.peak()), (20e9, 50e9));
        assert!((alone.ridge() - 2.5).abs() < 1e-12);
        assert_eq!((alone.at(0.1), alone.at(100.0)), (2e9, 50e9));
        let share = together.of_a_thread();
        assert_eq!((share.memory(), share.peak(), share.threads), (10e9, 50e9, 1));
    }

    #[test]
    fn a_dot_is_held_back_by_the_lowest_ceiling_above_it() {
        let roof = made_up_ceilings().alone;
        let dot = |intensity, giga: f64| Dot {
            label: "a".into(),
            intensity,
            flops_per_second: giga * 1e9,
            seconds: 1.0,
        };
        let triad = dot(1.0 / 12.0, 1.5);
        assert_eq!(triad.limit(&roof), Some("memory"));
        assert!((triad.share_of(&roof) - 0.9).abs() < 1e-9);
        assert!((triad.bytes_per_second() - 18e9).abs() < 1.0);
        assert_eq!(dot(1.0 / 12.0, 3.0).limit(&roof), Some("scalar"));
        assert_eq!(dot(1.0 / 12.0, 6.0).limit(&roof), Some("L1"));
        assert_eq!(dot(100.0, 30.0).limit(&roof), Some("AVX2 FMA"));
        assert_eq!(dot(100.0, 60.0).limit(&roof), None);
    }
}
