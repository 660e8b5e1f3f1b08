//! Numbers in text: three significant digits, a unit, a bounded width.
//!
//! The width of a column does not change while its figures do. ASCII only: `us` rather than `µs`,
//! so that one column is one byte everywhere.

use std::time::Duration;

/// The unit in which ticks are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds and parts of them.
    Time,
    /// Ticks of the process's clock.
    Cycles,
}

/// Converts ticks of a process's clock to text.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Ticks per second of the process's clock.
    pub ticks_per_second: f64,
    /// The unit to show.
    pub unit: Unit,
}

impl Scale {
    /// Ticks in at most seven columns: `4.10us`, `512Mcy`.
    pub fn ticks(&self, ticks: f64) -> String {
        match self.unit {
            Unit::Time => duration(ticks / self.ticks_per_second),
            Unit::Cycles => cycles(ticks),
        }
    }

    /// The duration of one measurement, or a mean. Below a nanosecond, the errors of the clock and
    /// of the subtracted cost are larger than the value, so it is shown as less than a nanosecond
    /// and never as zero.
    pub fn single(&self, ticks: f64) -> String {
        let seconds = ticks / self.ticks_per_second;
        match self.unit {
            Unit::Time if (0.0..1e-9).contains(&seconds) => "<1ns".into(),
            _ => self.ticks(ticks),
        }
    }
}

/// Parses a duration: a number and a unit, `250ms`, `1.5s`, `10m`, `2h`, or several of them,
/// `1h30m`; a number alone is seconds.
///
/// # Errors
///
/// If the text is not a duration. The error says what was expected.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a duration such as 1s, 250ms, 10m or 1h30m".to_owned();
    let mut rest = text.trim();
    let mut seconds = 0.0;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, next) = behind.split_at(letters);
        let unit = match unit {
            "" if number.len() == text.trim().len() => 1.0,
            "ns" => 1e-9,
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(wrong()),
        };
        seconds += number.parse::<f64>().map_err(|_| wrong())? * unit;
        rest = next;
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// Parses a number in the format of [`si`]: `7`, `1.5k`, `40M`. `None` if the text is not a number.
pub fn parse_si(text: &str) -> Option<f64> {
    const PREFIXES: [(char, f64); 4] = [('k', 1e3), ('M', 1e6), ('G', 1e9), ('T', 1e12)];
    let prefix = PREFIXES.into_iter().find(|(prefix, _)| text.ends_with(*prefix));
    let (digits, times) = prefix.map_or((text, 1.0), |(_, times)| (&text[..text.len() - 1], times));
    digits.parse::<f64>().ok().filter(|number| number.is_finite()).map(|number| number * times)
}

/// A number of bytes: `512 B`, `1.2 MiB`, `700 MiB`.
pub fn bytes(value: u64) -> String {
    let (mut scaled, mut units) = (value as f64, ["KiB", "MiB", "GiB", "TiB"].into_iter());
    let mut unit = "B";
    while scaled >= 1024.0
        && let Some(next) = units.next()
    {
        (scaled, unit) = (scaled / 1024.0, next);
    }
    let digits = if unit == "B" || scaled >= 100.0 { 0 } else { 1 };
    format!("{scaled:.digits$} {unit}")
}

/// A whole number with all its digits, in groups of three: `7`, `1,204`.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The text for a missing figure.
pub const NONE: &str = "-";

/// Initial capacity of these texts, in bytes. The capacity is enough for each text, so that none is
/// reallocated.
const ROOM: usize = 12;

/// A count in at most five columns: `7`, `999`, `1.20k`, `40.1M`.
pub fn count(value: u64) -> String {
    if value < 1000 { text(|out| push_whole(out, value)) } else { si(value as f64) }
}

/// Any number in at most five columns, with its sign if it is negative: `0.50`, `9.80k`, `-1.20M`.
pub fn si(value: f64) -> String {
    const PREFIXES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    if !value.is_finite() {
        return NONE.into();
    }
    if value < 0.0 {
        return format!("-{}", si(-value));
    }
    let mut scaled = value;
    for prefix in PREFIXES {
        if scaled < 999.5 {
            return three_digits(scaled, prefix);
        }
        scaled /= 1000.0;
    }
    ">999E".into()
}

/// Cycles in at most seven columns: `512cy`, `1.20Mcy`.
pub fn cycles(value: f64) -> String {
    if value.is_finite() && (0.0..999.5).contains(&value) && value.fract() == 0.0 {
        return format!("{value:.0}cy");
    }
    with_unit(value, "cy")
}

/// A duration in at most six columns: `23.0ns`, `4.10us`, `12m31s`, `3d04h`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return NONE.into();
    }
    if seconds == 0.0 {
        return "0ns".into();
    }
    for (unit, name) in [(1e-9, "ns"), (1e-6, "us"), (1e-3, "ms")] {
        if seconds / unit < 999.5 {
            return three_digits(seconds / unit, name);
        }
    }
    if seconds < 99.95 {
        return three_digits(seconds, "s");
    }
    let whole = seconds.round() as u64;
    match whole {
        0..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3600..360_000 => format!("{}h{:02}m", whole / 3600, whole % 3600 / 60),
        360_000..8_640_000 => format!("{}d{:02}h", whole / 86400, whole % 86400 / 3600),
        _ => match whole / 86400 {
            days @ ..100_000 => format!("{days}d"),
            _ => ">99kd".into(),
        },
    }
}

/// A share in per cent, without the sign, in at most five columns: `0.0`, `<0.01`, `0.27`,
/// `41.2`, `12.3k`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if !percent.is_finite() || percent < 0.0 {
        NONE.into()
    } else if percent > 0.0 && percent < 0.005 {
        "<0.01".into()
    } else if percent > 0.0 && percent < 0.995 {
        text(|out| push_hundredths(out, (percent * 100.0).round() as u64))
    } else if percent < 999.95 {
        text(|out| push_tenths(out, (percent * 10.0).round() as u64))
    } else if percent < 9999.5 {
        format!("{percent:.0}")
    } else {
        si(percent)
    }
}

/// The change of a share in percentage points, with its sign, in at most six columns: `+3.2`.
pub fn points(change: f64) -> String {
    let points = change * 100.0;
    match points.abs() {
        _ if !points.is_finite() => NONE.into(),
        ..0.05 => "0.0".into(),
        0.05..999.95 => format!("{points:+.1}"),
        0.0..99_999.5 => format!("{points:+.0}"),
        _ => if points > 0.0 { ">+99k" } else { "<-99k" }.into(),
    }
}

/// A relative change, in at most six columns: `+3.2%`, `-41%`, `x12`.
pub fn change(change: f64) -> String {
    match change.abs() {
        _ if !change.is_finite() => NONE.into(),
        ..0.0005 => "0.0%".into(),
        0.0005..0.0995 => format!("{:+.1}%", change * 100.0),
        0.0..9.995 => format!("{:+.0}%", change * 100.0),
        9.995..9999.0 => format!("x{:.0}", change + 1.0),
        _ => ">x9999".into(),
    }
}

/// A frequency: `2.60GHz`.
pub fn hertz(value: f64) -> String {
    with_unit(value, "Hz")
}

fn with_unit(value: f64, unit: &str) -> String {
    match si(value) {
        none if none == NONE => none,
        number => number + unit,
    }
}

/// A running time, like a clock: `00:12:31`, `3d 04:00:07`.
pub fn uptime(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return NONE.into();
    }
    let whole = seconds as u64;
    let (days, rest) = (whole / 86400, whole % 86400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest % 3600 / 60, rest % 60);
    if days == 0 { clock } else { format!("{days}d {clock}") }
}

/// A number below 999.5 with three significant digits, and its unit.
fn three_digits(value: f64, unit: &str) -> String {
    text(|out| {
        push_three_digits(out, value);
        out.push_str(unit);
    })
}

fn text(write: impl FnOnce(&mut String)) -> String {
    let mut text = String::with_capacity(ROOM);
    write(&mut text);
    text
}

/// A number below 999.5 with three significant digits. It uses integers: a screen has hundreds of
/// these, and `format!` costs several times as much.
fn push_three_digits(out: &mut String, value: f64) {
    let hundredths = (value * 100.0).round() as u64;
    let tenths = (value * 10.0).round() as u64;
    if hundredths < 1000 {
        push_hundredths(out, hundredths);
    } else if tenths < 1000 {
        push_tenths(out, tenths);
    } else {
        push_whole(out, value.round() as u64);
    }
}

fn push_hundredths(out: &mut String, hundredths: u64) {
    push_tenths(out, hundredths / 10);
    push_digit(out, hundredths % 10);
}

fn push_tenths(out: &mut String, tenths: u64) {
    push_whole(out, tenths / 10);
    out.push('.');
    push_digit(out, tenths % 10);
}

fn push_whole(out: &mut String, value: u64) {
    if value >= 10 {
        push_whole(out, value / 10);
    }
    push_digit(out, value % 10);
}

fn push_digit(out: &mut String, digit: u64) {
    out.push(char::from(b'0' + digit as u8));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        for (text, milliseconds) in [
            ("1s", 1000),
            ("250ms", 250),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1500),
            ("2", 2000),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for wrong in ["", "s", "1x", "-1s", "1s2", "1..2s", "nan", "1e3s", "99999999999999999999d"]
        {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_have_a_unit_that_fits() {
        for (value, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_300_000, "1.2 MiB"),
            (700 << 20, "700 MiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
    }

    #[test]
    fn whole_numbers_have_groups_of_three_digits() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345, "12,345"),
            (123_456, "123,456"),
            (1_000_000, "1,000,000"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(grouped(value), text);
        }
    }

    #[test]
    fn figures_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_200_000), "1.20M");
        assert_eq!(count(999_999), "1.00M");
        assert_eq!(count(u64::MAX), "18.4E");
        assert_eq!(duration(4.1e-6), "4.10us");
        assert_eq!(duration(0.9996), "1.00s");
        assert_eq!(duration(751.0), "12m31s");
        assert_eq!(duration(f64::NAN), NONE);
        assert_eq!(cycles(23.0), "23cy");
        assert_eq!(cycles(512e6), "512Mcy");
        let small = [0.0, 0.000_001, 0.000_04, 0.000_05, 0.002_7, 0.009_9, 0.009_96, 0.0123];
        let written = ["0.0", "<0.01", "<0.01", "0.01", "0.27", "0.99", "1.0", "1.2"];
        assert_eq!(small.map(percent), written, "two digits below 1");
        assert_eq!(percent(0.412), "41.2");
        assert_eq!(percent(7.999), "799.9");
        assert_eq!(percent(12.5), "1250");
        assert_eq!(hertz(2.6e9), "2.60GHz");
        assert_eq!(uptime(751.9), "00:12:31");
        assert_eq!(uptime(273_607.0), "3d 04:00:07");
    }

    #[test]
    fn every_value_fits_its_column() {
        let mut value = 1e-13;
        while value < 1e22 {
            assert!(si(value).len() <= 5, "{value} {}", si(value));
            assert!(duration(value).len() <= 6, "{value} {}", duration(value));
            assert!(cycles(value).len() <= 7, "{value} {}", cycles(value));
            assert!(percent(value).len() <= 5, "{value} {}", percent(value));
            value *= 1.0137;
        }
    }

    #[test]
    fn every_change_fits_its_column() {
        for sign in [1.0, -1.0] {
            let mut size = 1e-6;
            while size < 1e9 {
                assert!(points(sign * size).len() <= 6, "{}", points(sign * size));
                let share = (sign * size).max(-1.0);
                assert!(change(share).len() <= 6, "{}", change(share));
                size *= 1.07;
            }
        }
        assert_eq!([0.25, -0.031, 11.0].map(change), ["+25%", "-3.1%", "x12"]);
        assert_eq!([-0.1234, f64::NAN].map(points), ["-12.3", NONE]);
    }

    #[test]
    fn nonsense_clock_rates_show_no_figure() {
        for rate in [0.0, -1.0, f64::NAN] {
            let scale = Scale { ticks_per_second: rate, unit: Unit::Time };
            assert_eq!(scale.ticks(100.0), NONE);
        }
    }
}
