//! Arguments that several commands read.

use std::time::Duration;

use pfp_read::units;

/// Parses a poll interval.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    interval_from(Duration::from_millis(50), text)
}

/// Parses an interval between `least` and one day.
pub(super) fn interval_from(least: Duration, text: &str) -> Result<Duration, String> {
    const MAX: Duration = Duration::from_secs(86_400);
    match units::parse_duration(text)? {
        time if (least..=MAX).contains(&time) => Ok(time),
        _ => Err(format!("expected a time from {}ms to 1d", least.as_millis())),
    }
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=1e6).contains(&percent) => Ok(percent),
        _ => Err("expected per cent, such as 10".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_checked() {
        for half in ["0.5", "500ms"] {
            assert_eq!(interval(half), Ok(Duration::from_millis(500)), "{half}");
        }
        for wrong in ["0", "-1", "nan", "x", "1e9", "49ms", "25h"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
