//! The waits of several processes as one report.

use std::collections::HashMap;

use super::Kind;
use super::report::{
    Link, LockReport, PointReport, ReasonReport, SampledStack, Waiter, WaitsReport,
};
use super::report::{OUTSIDE, Waiting};

/// The report of a process, and how its points, lanes and locks are renamed in the merged report.
pub struct ReportPart<'a> {
    /// The report.
    pub report: &'a WaitsReport,
    /// Whether the report is new, so that its stacks were not counted yet.
    pub is_new: bool,
    /// The process, as in `my_app[4711]`.
    pub process: String,
    /// Whether the names of points and locks get the name of the process. False if the group sums
    /// points of the same name.
    pub names_points: bool,
    /// The new ids of its points.
    pub points: &'a HashMap<u32, u32>,
    /// The new ids of its lanes.
    pub lanes: &'a HashMap<u32, u32>,
}

impl WaitsReport {
    /// Merges the reports of several processes into report `number`. It has no totals, because
    /// processes join and leave.
    pub fn merged<'a>(number: u64, parts: impl IntoIterator<Item = ReportPart<'a>>) -> Self {
        let mut all = Self { number, is_clean: true, ..Self::default() };
        let mut places = HashMap::new();
        for part in parts {
            part.add_to(&mut all, &mut places);
        }
        let off = |it: &PointReport| it.queued_s + it.waited_s;
        all.points.sort_by(|a, b| off(b).total_cmp(&off(a)).then_with(|| a.name.cmp(&b.name)));
        all.locks.sort_by(|a, b| b.total_s.total_cmp(&a.total_s));
        all.now.sort_by_key(|waiting| waiting.lane);
        all
    }
}

impl ReportPart<'_> {
    /// `places` maps the id of a point to its index in `all.points`.
    fn add_to(&self, all: &mut WaitsReport, places: &mut HashMap<Option<u32>, usize>) {
        let report = self.report;
        all.seconds = all.seconds.max(report.seconds);
        all.samples = all.samples.saturating_add(report.samples);
        all.threads = all.threads.saturating_add(report.threads);
        for point in &report.points {
            // Skip a point that the group does not know yet; the next report has it.
            let id = match point.id {
                Some(id) if self.points.contains_key(&id) => Some(self.points[&id]),
                Some(_) => continue,
                None => None,
            };
            let (name, mut reasons) = (self.point(&point.name), point.reasons.clone());
            for reason in &mut reasons {
                reason.detail = self.lock(reason.reason, &reason.detail);
            }
            let point = PointReport { id, name, reasons, ..point.clone() };
            match places.get(&id) {
                Some(&place) => all.points[place].add(&point),
                None => {
                    places.insert(id, all.points.len());
                    all.points.push(point);
                }
            }
        }
        all.locks.extend(report.locks.iter().map(|lock| LockReport {
            name: self.lock(lock.reason, &lock.name),
            owner: lock.owner.as_ref().map(|owner| self.thread(owner)),
            owner_point: lock.owner_point.as_ref().map(|point| self.point(point)),
            waiters: lock.waiters.iter().map(|waiter| self.waiter(waiter)).collect(),
            ..lock.clone()
        }));
        let cycle = |cycle: &Vec<Link>| cycle.iter().map(|link| self.link(link)).collect();
        all.deadlocks.extend(report.deadlocks.iter().map(cycle));
        all.stuck.extend(report.stuck.iter().map(|link| self.link(link)));
        all.now.extend(report.now.iter().map(|waiting| Waiting {
            thread: self.thread(&waiting.thread),
            lane: waiting.lane.and_then(|lane| self.lanes.get(&lane)).copied(),
            ..waiting.clone()
        }));
        if let Some(limit) = &report.limit {
            all.limit.get_or_insert_with(|| format!("{}: {limit}", self.process));
        }
        if let Some(stacks) = &report.stacks {
            let all = all.stacks.get_or_insert_default();
            if self.is_new {
                all.extend(stacks.iter().filter_map(|stack| self.stack(stack)));
            }
        }
    }

    fn point(&self, name: &str) -> String {
        match self.names_points && name != OUTSIDE {
            true => format!("{name} of {}", self.process),
            false => name.to_owned(),
        }
    }

    /// The name of a lock, or another detail of a wait.
    fn lock(&self, kind: Kind, name: &str) -> String {
        match self.names_points && kind.has_address() && !name.is_empty() {
            true => format!("{name} of {}", self.process),
            false => name.to_owned(),
        }
    }

    fn thread(&self, name: &str) -> String {
        format!("{} {name}", self.process)
    }

    fn waiter(&self, waiter: &Waiter) -> Waiter {
        let (thread, point) = (self.thread(&waiter.thread), self.point(&waiter.point));
        Waiter { thread, point, ..waiter.clone() }
    }

    fn link(&self, link: &Link) -> Link {
        let (thread, point) = (self.thread(&link.thread), self.point(&link.point));
        let owner = link.owner.as_ref().map(|owner| self.thread(owner));
        Link { thread, point, owner, ..link.clone() }
    }

    fn stack(&self, stack: &SampledStack) -> Option<SampledStack> {
        let points = stack.points.iter().map(|point| self.points.get(point).copied());
        let (lane, points) = (*self.lanes.get(&stack.lane)?, points.collect::<Option<_>>()?);
        Some(SampledStack { lane, points, ..stack.clone() })
    }
}

impl PointReport {
    /// Adds the figures of the same point of another process.
    fn add(&mut self, other: &Self) {
        let wall = self.wall_s + other.wall_s;
        let mut reasons: HashMap<(Kind, String), ReasonReport> = HashMap::new();
        for of in [&*self, other] {
            for reason in &of.reasons {
                let share = if wall > 0.0 { reason.share * of.wall_s / wall } else { 0.0 };
                let key = (reason.reason, reason.detail.clone());
                let sum = reasons.entry(key).or_insert_with(|| ReasonReport {
                    share: 0.0,
                    threads: 0,
                    longest_s: 0.0,
                    ..reason.clone()
                });
                sum.share += share;
                sum.threads = sum.threads.saturating_add(reason.threads);
                sum.longest_s = sum.longest_s.max(reason.longest_s);
            }
        }
        self.reasons = reasons.into_values().collect();
        let by_share = |a: &ReasonReport, b: &ReasonReport| b.share.total_cmp(&a.share);
        self.reasons.sort_by(|a, b| by_share(a, b).then_with(|| a.detail.cmp(&b.detail)));
        self.threads = self.threads.saturating_add(other.threads);
        self.run_s += other.run_s;
        self.queued_s += other.queued_s;
        self.waited_s += other.waited_s;
        self.wall_s = wall;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(wall_s: f64, share: f64) -> WaitsReport {
        let reason = ReasonReport {
            reason: Kind::Lock,
            detail: "JOBS".into(),
            share,
            threads: 1,
            longest_s: wall_s,
        };
        let point = |id: Option<u32>, name: &str| PointReport {
            id,
            name: name.into(),
            threads: 1,
            wall_s,
            run_s: wall_s * (1.0 - share),
            waited_s: wall_s * share,
            reasons: vec![reason.clone()],
            ..PointReport::default()
        };
        let stack = |lane, points: &[u32]| SampledStack {
            lane,
            points: points.to_vec(),
            reason: None,
            count: 1,
        };
        let now = Waiting { thread: "main".into(), lane: Some(3), ..Waiting::default() };
        let lock = LockReport {
            reason: Kind::Lock,
            name: "JOBS".into(),
            owner: Some("main".into()),
            waits: 2,
            ..LockReport::default()
        };
        let link = Link { thread: "main".into(), owner: Some("two".into()), ..Link::default() };
        WaitsReport {
            seconds: 5.0,
            locks: vec![lock],
            deadlocks: vec![vec![link]],
            points: vec![point(Some(1), "parse"), point(Some(9), "new"), point(None, OUTSIDE)],
            now: vec![now],
            stacks: Some(vec![stack(3, &[1]), stack(3, &[1, 9]), stack(4, &[1])]),
            ..WaitsReport::default()
        }
    }

    #[test]
    fn points_of_two_processes_are_summed_or_named() {
        let reports = [report(1.0, 0.5), report(3.0, 0.9)];
        let ids = [HashMap::from([(1, 7)]), HashMap::from([(1, 8)])];
        let lanes = HashMap::from([(3, 30)]);
        for sums in [true, false] {
            let merged = WaitsReport::merged(
                1,
                (0..2).map(|at| ReportPart {
                    report: &reports[at],
                    is_new: true,
                    process: format!("app[{at}]"),
                    names_points: !sums,
                    points: if sums { &ids[0] } else { &ids[at] },
                    lanes: &lanes,
                }),
            );
            let parse: Vec<_> = merged.points.iter().filter(|it| it.id.is_some()).collect();
            if sums {
                let [parse] = parse[..] else { panic!("{merged:?}") };
                assert_eq!((parse.name.as_str(), parse.wall_s), ("parse", 4.0));
                assert!((parse.reasons[0].share - 0.8).abs() < 1e-9, "{parse:?}");
                assert_eq!(parse.reasons[0].threads, 2);
            } else {
                let names: Vec<_> = parse.iter().map(|it| it.name.as_str()).collect();
                assert_eq!(names, ["parse of app[1]", "parse of app[0]"]);
                assert_eq!(parse[0].reasons[0].detail, "JOBS of app[1]");
            }
            let outside: Vec<_> = merged.points.iter().filter(|it| it.id.is_none()).collect();
            assert_eq!((outside.len(), outside[0].wall_s), (1, 4.0));
            // Points and lanes that are not known yet are left out.
            let id = |at: usize| if sums { 7 } else { [7, 8][at] };
            let reasons = merged.reasons();
            let stacks = merged.stacks.as_ref().expect("they were sampled");
            assert!(stacks.iter().all(|it| it.lane == 30), "{stacks:?}");
            assert_eq!(
                (&stacks[0].points[..], &stacks[1].points[..]),
                (&[id(0)][..], &[id(1)][..])
            );
            // Each row names the owner of its lock, if there is only one.
            let rows = reasons.iter().filter(|it| it.name.starts_with("lock JOBS"));
            let rows: Vec<_> = rows.map(|it| (it.owner.as_str(), it.waits)).collect();
            match sums {
                true => assert_eq!(rows, [("", Some(4))]),
                false => {
                    assert_eq!(rows, [("app[1] main", Some(2)), ("app[0] main", Some(2))]);
                }
            }
            let links = merged.deadlocks.iter().map(|cycle| cycle[0].thread.as_str());
            assert_eq!(links.collect::<Vec<_>>(), ["app[0] main", "app[1] main"]);
            let threads: Vec<_> = merged.now.iter().map(|it| it.thread.as_str()).collect();
            assert_eq!(threads, ["app[0] main", "app[1] main"]);
        }
    }
}
