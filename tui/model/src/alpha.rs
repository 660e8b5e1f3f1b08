//! Alpha of a point's EWMA, as the user writes it: `0.2`, a period over a time constant as in
//! `100ms/500ms`, or `off`.

/// Parses alpha; `None` means `off`. An error states what was expected.
pub fn parse(text: &str) -> Result<Option<f64>, String> {
    let text = text.trim();
    if text == "off" {
        return Ok(None);
    }
    let alpha = match text.split_once('/') {
        None => text.parse().map_err(|_| "expected 0.2, 100ms/500ms or off".to_owned())?,
        Some((period, tau)) => {
            let ((period, period_unit), (tau, tau_unit)) = (time(period)?, time(tau)?);
            if period_unit.is_some() != tau_unit.is_some() {
                return Err("expected a unit with both times, such as 100ms/500ms".into());
            }
            period * period_unit.unwrap_or(1.0) / (tau * tau_unit.unwrap_or(1.0))
        }
    };
    if alpha > 0.0 && alpha <= 1.0 {
        return Ok(Some(alpha));
    }
    let found = written(alpha);
    Err(match text.contains('/') {
        true => format!("T/tau is {found}: expected above 0, up to 1"),
        false => format!("{found}: expected above 0, up to 1"),
    })
}

/// The shortest text for alpha, with about six digits.
pub fn written(alpha: f64) -> String {
    let text = format!("{alpha:.6}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short == "0" && alpha != 0.0 { format!("{alpha:e}") } else { short.into() }
}

/// A time with its unit, such as `100ms`, in seconds. `None` if the text is not a time.
pub(crate) fn seconds(text: &str) -> Option<f64> {
    let (number, unit) = time(text).ok()?;
    Some(number * unit?)
}

/// A number, and its unit in seconds.
fn time(text: &str) -> Result<(f64, Option<f64>), String> {
    let text = text.trim();
    let digits = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "" => None,
        "ns" => Some(1e-9),
        "us" | "µs" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        "m" | "min" => Some(60.0),
        _ => return Err(format!("{unit}: expected ns, us, ms, s or min")),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number >= 0.0 => Ok((number, unit)),
        _ => Err("expected times such as 100ms/500ms".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpha_is_parsed_in_every_notation() {
        for (text, expected) in [
            ("0.2", Some(0.2)),
            (" 1 ", Some(1.0)),
            ("off", None),
            ("100ms/500ms", Some(0.2)),
            ("100 us / 1ms", Some(0.1)),
            ("1s/1min", Some(1.0 / 60.0)),
            ("1/5", Some(0.2)),
        ] {
            let found = parse(text).unwrap();
            assert_eq!(found.is_some(), expected.is_some(), "{text}");
            let difference = found.unwrap_or(0.0) - expected.unwrap_or(0.0);
            assert!(difference.abs() < 1e-12, "{text} {found:?}");
        }
    }

    #[test]
    fn invalid_alphas_are_refused_with_the_reason() {
        for (text, reason) in [
            ("0", "0: expected above 0"),
            ("-0.5", "-0.5: expected above 0"),
            ("1.5", "1.5: expected above 0, up to 1"),
            ("nan", "NaN: expected"),
            ("", "expected 0.2"),
            ("fast", "expected 0.2"),
            ("5s/100ms", "T/tau is 50: expected"),
            ("1s/0s", "T/tau is inf: expected"),
            ("0s/0s", "T/tau is NaN: expected"),
            ("1s/5", "a unit with both"),
            ("1d/5d", "d: expected ns"),
            ("/5s", "expected times"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn alpha_is_written_as_it_was_typed() {
        // A segment stores 0.2 in units of 2^-20.
        assert_eq!(written((0.2_f64 * 1048576.0).round() / 1048576.0), "0.2");
        assert_eq!(
            (written(1.0), written(0.0), written(1e-9)),
            ("1".into(), "0".into(), "1e-9".into())
        );
    }
}
