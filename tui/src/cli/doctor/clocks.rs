//! `pfp-top doctor clocks`: the rates of the clocks behind the figures, measured and reported, and
//! how they differ.

use std::fs;
use std::time::Duration;

use super::CheckResult;
use crate::cli::demo;
use pfp_read::snapshot::Clock;
use pfp_read::units;

/// Maximum relative difference between two rates of the counter that still counts as an error of a
/// short measurement.
const RATE_FINE: f64 = 500e-6;
/// If the relative difference between two rates is greater than this, they are not of the same
/// clock.
const RATE_WRONG: f64 = 0.01;
/// Maximum relative error of the measured core clock.
const CORE_FINE: f64 = 0.02;
/// Time over which the counter is compared with the kernel's clock.
const STRETCH: Duration = Duration::from_millis(400);

/// A reported rate of a core's clock, in hertz.
#[derive(Clone, Debug, PartialEq)]
struct Reported {
    by: &'static str,
    least: f64,
    most: f64,
}

pub(super) fn all() -> Vec<CheckResult> {
    let mut findings = match demo::rates(STRETCH) {
        Ok((clock, ticks_per_second)) => {
            let mut findings = counter(&clock, ticks_per_second);
            findings.extend(core(&clock, &reported()));
            findings
        }
        Err(error) => vec![
            CheckResult::problem("counter", format!("a program tried out here: {error:#}"))
                .advice("`pfp-top doctor` shows what keeps it from measuring"),
        ],
    };
    findings.push(source());
    findings
}

/// A rate in GHz, precise to a kilohertz.
fn gigahertz(rate: f64) -> String {
    format!("{:.6} GHz", rate / 1e9)
}

fn share(difference: f64) -> String {
    match difference.abs() {
        small if small < 1e-3 => format!("{:+.0} ppm", difference * 1e6),
        _ => format!("{:+.2} %", difference * 100.0),
    }
}

/// Checks the rate of the time-stamp counter, which counts ticks. `watched` is the rate that this
/// process has measured.
fn counter(clock: &Clock, watched: f64) -> Vec<CheckResult> {
    const ABOUT: &str = "counter";
    let own = clock.ticks_per_second;
    let mut findings = vec![CheckResult::ok(
        ABOUT,
        format!("measured by the program tried out: {}", gigahertz(own)),
    )];
    let mut hold = |by: &str, rate: f64, advice: &str| {
        let difference = rate / own - 1.0;
        let found = format!("{by}: {}, {} from that", gigahertz(rate), share(difference));
        findings.push(match difference.abs() {
            off if off <= RATE_FINE => CheckResult::ok(ABOUT, found),
            off if off <= RATE_WRONG => CheckResult::note(ABOUT, found).advice(advice),
            _ => CheckResult::problem(ABOUT, found).advice(advice),
        });
    };
    hold(
        "measured by this program, against the kernel's clock",
        watched,
        "times in seconds are off by as much; the error shrinks as a program runs longer",
    );
    match clock.reported_ticks_per_second {
        Some(rate) => hold(
            "reported by the processor or hypervisor",
            rate,
            "pfp uses the measured rate; programs that use the reported one are off by as much",
        ),
        None => findings.push(CheckResult::ok(
            ABOUT,
            "not reported (CPUID leaves 0x15 and 0x40000010): only the measurement is available",
        )),
    }
    findings.push(if clock.invariant {
        CheckResult::ok(ABOUT, "the processor guarantees a constant rate")
    } else {
        CheckResult::note(ABOUT, "the processor does not guarantee a constant rate")
            .advice("compare only figures of runs under the same load of the machine")
    });
    findings
}

/// Checks the rate of the core's own clock, which counts cycles.
fn core(clock: &Clock, reported: &[Reported]) -> Vec<CheckResult> {
    const ABOUT: &str = "core";
    let Some(measured) = clock.core_hz.filter(|hz| *hz > 0.0) else {
        return vec![CheckResult::note(ABOUT, "its clock cannot be measured here")];
    };
    let ratio = measured / clock.ticks_per_second;
    let found = format!(
        "measured by dependent additions: {}, {ratio:.3} cycles a tick",
        units::hertz(measured)
    );
    let mut findings = vec![CheckResult::ok(ABOUT, found)];
    if reported.is_empty() {
        findings.push(CheckResult::ok(ABOUT, "not reported: only the measurement is available"));
    }
    for Reported { by, least, most } in reported {
        let range = match most - least <= 1e6 {
            true => units::hertz(*most),
            false => format!("{} to {}", units::hertz(*least), units::hertz(*most)),
        };
        // The relative distance from the reported range; 0 within the range.
        let difference = (measured - measured.clamp(*least, *most)) / measured.clamp(*least, *most);
        let found = format!("reported by {by}: {range}");
        findings.push(if difference.abs() <= CORE_FINE {
            CheckResult::ok(ABOUT, format!("{found}, which agrees"))
        } else {
            CheckResult::note(
                ABOUT,
                format!("{found}; the measured rate is {} off", share(difference)),
            )
            .advice(
                "do not convert cycles with the reported rate: the core runs at another \
                         one",
            )
        });
    }
    findings
}

/// The rates of the cores' clocks as the kernel reports them, one entry per report.
fn reported() -> Vec<Reported> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut all: Vec<Reported> =
        range("the kernel (/proc/cpuinfo)", megahertz(&cpuinfo)).into_iter().collect();
    let frequency = |name: &str| -> Vec<f64> {
        let cpus = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
        cpus.filter_map(|cpu| fs::read_to_string(cpu.path().join("cpufreq").join(name)).ok())
            .filter_map(|text| text.trim().parse::<f64>().ok())
            .map(|kilohertz| kilohertz * 1e3)
            .collect()
    };
    all.extend(range("cpufreq, now", frequency("scaling_cur_freq")));
    all.extend(range("cpufreq, at most", frequency("cpuinfo_max_freq")));
    all
}

/// The clocks in `/proc/cpuinfo`, in hertz.
fn megahertz(cpuinfo: &str) -> Vec<f64> {
    let lines = cpuinfo.lines().filter(|line| line.starts_with("cpu MHz"));
    let values = lines.filter_map(|line| line.split_once(':')?.1.trim().parse::<f64>().ok());
    values.map(|value| value * 1e6).collect()
}

fn range(by: &'static str, hertz: Vec<f64>) -> Option<Reported> {
    let hertz = hertz.into_iter().filter(|hertz| hertz.is_finite() && *hertz > 0.0);
    let both = hertz.fold(None, |both: Option<(f64, f64)>, hz| {
        Some(both.map_or((hz, hz), |(least, most)| (least.min(hz), most.max(hz))))
    });
    both.map(|(least, most)| Reported { by, least, most })
}

/// Checks the kernel's own clock source.
fn source() -> CheckResult {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match fs::read_to_string(path).map(|text| text.trim().to_owned()) {
        Ok(name)
            if ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"]
                .contains(&name.as_str()) =>
        {
            CheckResult::ok("source", format!("the kernel's clock source is {name}"))
        }
        Ok(name) => CheckResult::note("source", format!("the kernel's clock source is {name}"))
            .advice("it may have found the time-stamp counter unstable: see `dmesg | grep -i tsc`"),
        Err(_) => CheckResult::ok("source", "the kernel does not report its clock source"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::CheckVerdict;
    use super::*;
    use pfp_read::snapshot::ClockKind;

    fn clock(reported: Option<f64>, core_hz: Option<f64>) -> Clock {
        Clock {
            kind: ClockKind::Rseq,
            ticks_per_second: 2.5e9,
            reported_ticks_per_second: reported,
            core_hz,
            invariant: true,
            system_clock: false,
            overhead_inside: 0,
            overhead_pair: 0,
        }
    }

    fn verdicts(findings: &[CheckResult]) -> Vec<CheckVerdict> {
        findings.iter().map(|finding| finding.verdict).collect()
    }

    #[test]
    fn reported_rates_are_compared_with_measured_ones() {
        use CheckVerdict::{Note, Ok, Problem};
        for (watched, reported, expected) in [
            (2.5e9, Some(2.5e9), [Ok, Ok, Ok, Ok]),
            (2.5001e9, None, [Ok, Ok, Ok, Ok]),
            (2.5e9, Some(2.51e9), [Ok, Ok, Note, Ok]),
            (2.52e9, Some(2.4e9), [Ok, Note, Problem, Ok]),
            (3.5e9, None, [Ok, Problem, Ok, Ok]),
        ] {
            let found = counter(&clock(reported, None), watched);
            assert_eq!(verdicts(&found), expected, "{found:?}");
        }
        let found = counter(&clock(Some(2.51e9), None), 2.500_1e9);
        assert!(found[1].found.contains("2.500100 GHz, +40 ppm"), "{found:?}");
        assert!(found[2].found.contains("2.510000 GHz, +0.40 %"), "{found:?}");
    }

    #[test]
    fn a_core_off_its_reported_rate_is_noted() {
        let text = "processor : 0\ncpu MHz\t\t: 2450.000\nprocessor : 1\ncpu MHz : 3400.5\n";
        let cpuinfo = range("it", megahertz(text)).expect("two clocks");
        assert_eq!((cpuinfo.least, cpuinfo.most), (2.45e9, 3400.5e6));
        let agrees = core(&clock(None, Some(3.0e9)), std::slice::from_ref(&cpuinfo));
        assert_eq!(verdicts(&agrees), [CheckVerdict::Ok, CheckVerdict::Ok]);
        let faster = core(&clock(None, Some(3.74055e9)), &[cpuinfo]);
        assert_eq!(verdicts(&faster), [CheckVerdict::Ok, CheckVerdict::Note]);
        assert!(faster[1].found.contains("+10.00 % off"), "{faster:?}");
        assert!(faster[0].found.contains("1.496 cycles a tick"), "{faster:?}");
        assert_eq!(range("it", megahertz("cpu MHz : none\n")), None);
        assert_eq!(verdicts(&core(&clock(None, None), &[])), [CheckVerdict::Note]);
    }
}
