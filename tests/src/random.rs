//! Pseudo-random numbers, identical in every run.

/// A xorshift generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator; neighbouring seeds yield unrelated numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // The state is never 0, since xorshift yields only zeros from it.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below a limit, which must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.word() % limit as u64) as usize
    }

    /// A boundary value, at which counts, offsets and shifts go wrong.
    pub fn edge(&mut self) -> u64 {
        const EDGES: [u64; 22] = [
            0,
            1,
            2,
            3,
            13,
            31,
            32,
            63,
            64,
            128,
            255,
            256,
            4096,
            8192,
            1 << 14,
            1 << 16,
            1 << 24,
            1 << 31,
            1 << 32,
            1 << 52,
            1 << 62,
            1 << 63,
        ];
        let edge = EDGES[self.below(EDGES.len())];
        match self.below(3) {
            0 => edge,
            1 => edge.wrapping_sub(1),
            _ => edge.wrapping_neg(),
        }
    }
}
