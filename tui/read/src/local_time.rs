//! Moments of the wall clock, in the user's local time.

use std::time::{SystemTime, UNIX_EPOCH};

/// A moment, nanoseconds since the Unix epoch; 0 if it is before the epoch.
pub fn unix_ns(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A moment as part of a file's name: `20261121-120000`.
pub fn file_stamp(unix_ns: u64) -> String {
    let t = parts(unix_ns);
    format!(
        "{:04}{:02}{:02}-{:02}{:02}{:02}",
        i64::from(t.tm_year) + 1900,
        t.tm_mon + 1,
        t.tm_mday,
        t.tm_hour,
        t.tm_min,
        t.tm_sec
    )
}

/// The time of day: `12:00:00`.
pub fn time_of_day(unix_ns: u64) -> String {
    let t = parts(unix_ns);
    format!("{:02}:{:02}:{:02}", t.tm_hour, t.tm_min, t.tm_sec)
}

/// Seconds since the last midnight.
pub fn second_of_day(unix_ns: u64) -> u64 {
    let t = parts(unix_ns);
    [t.tm_hour, t.tm_min, t.tm_sec]
        .iter()
        .fold(0, |sum, part| sum * 60 + u64::from(part.unsigned_abs()))
}

fn parts(unix_ns: u64) -> libc::tm {
    let seconds = (unix_ns / 1_000_000_000) as i64;
    // SAFETY: an all-zero `tm` is a valid value of that plain struct.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals of the right types.
    unsafe { libc::localtime_r(&seconds, &mut parts) };
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_time_formats_agree() {
        for unix_ns in [0, 1_764_000_000_123_456_789, 1_700_000_059_999_999_999] {
            let time = time_of_day(unix_ns);
            let stamp = file_stamp(unix_ns);
            assert_eq!(stamp.split_once('-').unwrap().1, time.replace(':', ""));
            // Offsets from UTC are whole quarters of an hour.
            let seconds = format!("{:02}", unix_ns / 1_000_000_000 % 60);
            assert!(time.ends_with(&seconds), "{time}");
            let s = second_of_day(unix_ns);
            assert_eq!(time, format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60));
        }
    }
}
