//! The loops that measure the ceilings.
//!
//! Arithmetic: twelve chains of `x = x * a + b`, enough to hide the latency of two units, in
//! registers only. Memory: STREAM's triad, `a[i] = b[i] + s * c[i]`, which counts as 24 bytes an
//! element, as in STREAM.

/// Number of chains in an arithmetic loop.
pub(super) const CHAINS: usize = 12;
/// Number of 64-bit numbers in the widest register.
const WIDEST: usize = 8;

/// The factor and the addend of a chain, whose values stay near 1.
const FACTOR: f64 = 0.5;
const ADDEND: f64 = 0.6;
const START: f64 = 1.5;

/// The final registers of all chains.
type Registers = [[f64; WIDEST]; CHAINS];

/// An arithmetic loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arithmetic {
    /// The loop's kind of instructions.
    pub(super) kind: &'static str,
    /// Number of 64-bit numbers in a register.
    pub(super) lanes: usize,
    run: fn(u64) -> Registers,
}

impl Arithmetic {
    /// The loops that this processor can run, the slowest first.
    pub(super) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            all.push(Self { kind: "scalar", lanes: 1, run: x86::scalar });
            if std::is_x86_feature_detected!("avx512f") {
                all.push(Self { kind: "AVX-512 FMA", lanes: 8, run: x86::avx512 });
            } else if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma")
            {
                all.push(Self { kind: "AVX2 FMA", lanes: 4, run: x86::avx2 });
            } else {
                all.push(Self { kind: "SSE2", lanes: 2, run: x86::sse2 });
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        all.push(Self { kind: "compiled", lanes: WIDEST, run: compiled });
        all
    }

    /// Runs the rounds. Returns the number of operations: a multiplication and an addition for each
    /// number.
    pub(super) fn run(self, rounds: u64) -> f64 {
        std::hint::black_box((self.run)(rounds.max(1)));
        rounds.max(1) as f64 * (CHAINS * self.lanes * 2) as f64
    }
}

/// A loop that the compiler generates, for other processors.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn compiled(rounds: u64) -> Registers {
    let mut chains = [[START; WIDEST]; CHAINS];
    for _ in 0..rounds {
        for number in chains.as_flattened_mut() {
            *number = *number * FACTOR + ADDEND;
        }
    }
    chains
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{ADDEND, CHAINS, FACTOR, Registers, START, WIDEST};
    use std::arch::asm;

    /// A loop over registers `$reg`, loaded and stored by `$moved`. `$step` is applied to each of
    /// the chains: register `\i` is the chain, 12 the factor and 13 the addend.
    macro_rules! kernel {
        ($name:ident, $reg:literal, $moved:literal, [$($step:expr),+], [$($end:literal)?]) => {
            pub(super) fn $name(rounds: u64) -> Registers {
                let (start, factor, addend) = ([START; WIDEST], [FACTOR; WIDEST], [ADDEND; WIDEST]);
                let mut chains: Registers = [[0.0; WIDEST]; CHAINS];
                // SAFETY: [`Arithmetic::all`] offers a loop only if the processor has its
                // instructions. The loop reads three arrays and writes one; each of them, and each
                // row, is as long as the widest register. It uses no stack, and the operands name
                // every register that it changes.
                unsafe {
                    asm!(
                        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11",
                        concat!($moved, " ", $reg, "\\i, [{start}]"),
                        ".endr",
                        concat!($moved, " ", $reg, "12, [{factor}]"),
                        concat!($moved, " ", $reg, "13, [{addend}]"),
                        ".p2align 5",
                        "2:",
                        $(
                            ".irp i,0,1,2,3,4,5,6,7,8,9,10,11",
                            $step,
                            ".endr",
                        )+
                        "dec {rounds}",
                        "jnz 2b",
                        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11",
                        concat!($moved, " [{chains} + 64*\\i], ", $reg, "\\i"),
                        ".endr",
                        $($end,)?
                        start = in(reg) &raw const start,
                        factor = in(reg) &raw const factor,
                        addend = in(reg) &raw const addend,
                        chains = in(reg) &raw mut chains,
                        rounds = inout(reg) rounds => _,
                        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                        out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                        out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                        out("xmm12") _, out("xmm13") _,
                        options(nostack),
                    );
                }
                chains
            }
        };
    }

    kernel!(scalar, "xmm", "movsd", ["mulsd xmm\\i, xmm12", "addsd xmm\\i, xmm13"], []);
    kernel!(sse2, "xmm", "movupd", ["mulpd xmm\\i, xmm12", "addpd xmm\\i, xmm13"], []);
    kernel!(avx2, "ymm", "vmovupd", ["vfmadd213pd ymm\\i, ymm12, ymm13"], ["vzeroupper"]);
    kernel!(avx512, "zmm", "vmovupd", ["vfmadd213pd zmm\\i, zmm12, zmm13"], ["vzeroupper"]);
}

/// The arrays of a triad.
#[derive(Debug)]
pub(super) struct Triad {
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
}

impl Triad {
    /// Allocates three arrays of this size together, and fills them, so that memory backs them.
    pub(super) fn new(bytes: u64) -> Self {
        let len = (bytes as usize / 24).max(64);
        Self { a: vec![0.5; len], b: vec![1.5; len], c: vec![2.5; len] }
    }

    /// Runs the passes. Returns the number of bytes read and written.
    pub(super) fn run(&mut self, rounds: u64) -> f64 {
        for _ in 0..rounds.max(1) {
            self.pass();
            // Without this, the compiler could remove passes, since all passes write the same
            // values.
            std::hint::black_box(&mut self.a);
        }
        rounds.max(1) as f64 * (24 * self.a.len()) as f64
    }

    fn pass(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
            // SAFETY: the processor has AVX2 and FMA, for which the method is compiled.
            return unsafe { self.pass_avx2() };
        }
        triad(&mut self.a, &self.b, &self.c);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn pass_avx2(&mut self) {
        triad(&mut self.a, &self.b, &self.c);
    }
}

#[inline(always)]
fn triad(a: &mut [f64], b: &[f64], c: &[f64]) {
    for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
        *a = b + FACTOR * c;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chains' final values show the number of rounds: each round halves the distance of the
    /// values from the limit.
    #[test]
    fn every_loop_does_the_counted_operations() {
        for arithmetic in Arithmetic::all() {
            for rounds in [1, 2, 7, 30] {
                let expected = (0..rounds).fold(START, |x, _| x * FACTOR + ADDEND);
                for chain in (arithmetic.run)(rounds) {
                    for number in &chain[..arithmetic.lanes] {
                        let error = (number / expected - 1.0).abs();
                        assert!(error < 1e-14, "{arithmetic:?}, {rounds}: {chain:?}");
                    }
                    // The loop uses only the number of lanes that it declares.
                    assert!(chain[arithmetic.lanes..].iter().all(|number| *number == 0.0));
                }
            }
            assert_eq!(arithmetic.run(10), (10 * 12 * 2 * arithmetic.lanes) as f64);
        }
        assert_eq!(compiled(1), [[START * FACTOR + ADDEND; WIDEST]; CHAINS]);
    }

    #[test]
    fn a_triad_goes_over_all_of_it() {
        let mut triad = Triad::new(24_000);
        assert_eq!(triad.run(3), 72_000.0);
        assert!(triad.a.len() == 1_000 && triad.a.iter().all(|a| *a == 1.5 + FACTOR * 2.5));
    }
}
