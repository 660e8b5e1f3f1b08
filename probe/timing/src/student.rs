//! Student's t distribution, for the uncertainty of a mean of few samples.

/// Two-sided quantile: the absolute value of a variable of Student's t distribution with `freedom`
/// degrees of freedom exceeds the result with probability `beyond`, in (0, 1).
///
/// For three and more degrees: G. W. Hill, "Algorithm 396: Student's t-quantiles", Communications
/// of the ACM 13 (1970), 619-620, accurate to six digits. One and two degrees have closed forms.
pub(super) fn t_quantile(beyond: f64, freedom: f64) -> f64 {
    use std::f64::consts::PI;
    let (p, n) = (beyond, freedom);
    if n < 1.5 {
        let half = p * PI / 2.0;
        return half.cos() / half.sin();
    }
    if n < 2.5 {
        return (2.0 / (p * (2.0 - p)) - 2.0).sqrt();
    }
    let a = 1.0 / (n - 0.5);
    let b = 48.0 / (a * a);
    let mut c = ((20700.0 * a / b - 98.0) * a - 16.0) * a + 96.36;
    let d = ((94.5 / (b + c) - 3.0) / b + 1.0) * (a * PI / 2.0).sqrt() * n;
    let mut y = (d * p).powf(2.0 / n);
    if y > 0.05 + a {
        let x = normal_quantile(p / 2.0);
        y = x * x;
        if n < 5.0 {
            c += 0.3 * (n - 4.5) * (x + 0.6);
        }
        c += (((0.05 * d * x - 5.0) * x - 7.0) * x - 2.0) * x + b;
        y = (((((0.4 * y + 6.3) * y + 36.0) * y + 94.5) / c - y - 3.0) / b + 1.0) * x;
        y = a * y * y;
        y = y.exp_m1();
    } else {
        y = ((1.0 / (((n + 6.0) / (n * y) - 0.089 * d - 0.822) * (n + 2.0) * 3.0)
            + 0.5 / (n + 4.0))
            * y
            - 1.0)
            * (n + 1.0)
            / (n + 2.0)
            + 1.0 / y;
    }
    (n * y).sqrt()
}

/// Quantile of the normal distribution for a probability `p` below one half. Uses the rational
/// approximation 26.2.23 of Abramowitz and Stegun (Handbook of Mathematical Functions, 1964),
/// refined by Newton's method.
fn normal_quantile(p: f64) -> f64 {
    let t = (-2.0 * p.ln()).sqrt();
    let top = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let bottom = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    let mut x = t - top / bottom;
    for _ in 0..3 {
        let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        if density <= 0.0 {
            break;
        }
        x += (upper_tail(x) - p) / density;
    }
    -x
}

/// The probability that a normal variable exceeds `x`, which is 0 or more, by Simpson's rule up to
/// where the density vanishes.
fn upper_tail(x: f64) -> f64 {
    const STEPS: u32 = 400;
    const END: f64 = 9.0;
    let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let step = (END - x).max(0.0) / f64::from(STEPS);
    let sum: f64 = (0..=STEPS)
        .map(|at| {
            let weight = match at {
                0 | STEPS => 1.0,
                odd if odd % 2 == 1 => 4.0,
                _ => 2.0,
            };
            weight * density(x + f64::from(at) * step)
        })
        .sum();
    sum * step / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of printed tables (two-sided 5 % and 1 %).
    #[test]
    fn quantiles_match_printed_tables() {
        for (freedom, five, one) in [
            (1.0, 12.706, 63.657),
            (2.0, 4.303, 9.925),
            (3.0, 3.182, 5.841),
            (4.0, 2.776, 4.604),
            (5.0, 2.571, 4.032),
            (7.0, 2.365, 3.499),
            (10.0, 2.228, 3.169),
            (19.0, 2.093, 2.861),
            (30.0, 2.042, 2.750),
            (60.0, 2.000, 2.660),
            (120.0, 1.980, 2.617),
            (1e6, 1.960, 2.576),
        ] {
            let found = [t_quantile(0.05, freedom), t_quantile(0.01, freedom)];
            assert!((found[0] - five).abs() < 1e-3, "{freedom}: {found:?}");
            assert!((found[1] - one).abs() < 1.2e-3, "{freedom}: {found:?}");
        }
    }
}
