//! Who calls a point and whom it calls, out of the records of the rings.
//!
//! A ring has the last finished measurements of a thread in the order in which
//! they ended, so a region comes after all regions inside it. Read from the newest
//! back, each region's caller has been seen just before: the last one seen that is
//! open one level less and encloses it.

use std::collections::BTreeMap;

use crate::snapshot::Record;

/// The regions that were open around, or inside, those of one point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Records of the point that this is told from.
    pub records: u64,
    /// What its regions took in all, ticks from begin to end.
    pub span: u64,
    /// Those around, most calls first.
    pub callers: Vec<Related>,
    /// Those directly inside, longest first.
    pub children: Vec<Related>,
}

/// A point on the other side of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Related {
    /// Id of the point; none for no region, or one whose record is not there any
    /// more or not yet.
    pub point: Option<u32>,
    /// Calls.
    pub count: u64,
    /// Ticks from begin to end, of the regions inside.
    pub span: u64,
}

impl Calls {
    /// Of one point, from the records of any lanes, each lane's oldest first.
    #[must_use]
    pub fn of(point: u32, records: &[Record]) -> Self {
        let mut calls = Self::default();
        let mut callers: BTreeMap<Option<u32>, Related> = BTreeMap::new();
        let mut children: BTreeMap<Option<u32>, Related> = BTreeMap::new();
        let mut around: Vec<&Record> = Vec::new();
        for lane in records.chunk_by(|one, next| one.lane == next.lane) {
            around.clear();
            for record in lane.iter().rev() {
                // A record may be of any bytes: regions that do not enclose this
                // one are over, whatever their depth says.
                while around.last().is_some_and(|outer| !encloses(outer, record)) {
                    around.pop();
                }
                let caller =
                    around.last().filter(|outer| outer.depth.checked_add(1) == Some(record.depth));
                let caller = caller.map(|caller| caller.point);
                if record.point == point {
                    calls.records += 1;
                    calls.span = calls.span.saturating_add(record.span);
                    add(&mut callers, caller, record);
                }
                if caller == Some(point) {
                    add(&mut children, Some(record.point), record);
                }
                around.push(record);
            }
        }
        calls.callers = callers.into_values().collect();
        calls.callers.sort_by_key(|related| std::cmp::Reverse(related.count));
        calls.children = children.into_values().collect();
        calls.children.sort_by_key(|related| std::cmp::Reverse(related.span));
        calls
    }
}

/// Whether `inner` lies in `outer`, in one context and at a lower level.
fn encloses(outer: &Record, inner: &Record) -> bool {
    let end = |record: &Record| record.start.saturating_add(record.span);
    outer.context == inner.context
        && outer.depth < inner.depth
        && outer.start <= inner.start
        && end(inner) <= end(outer)
}

fn add(to: &mut BTreeMap<Option<u32>, Related>, point: Option<u32>, record: &Record) {
    let related = to.entry(point).or_insert(Related { point, count: 0, span: 0 });
    related.count += 1;
    related.span = related.span.saturating_add(record.span);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regions of a made-up program in the order in which they end, as a ring has
    /// them.
    struct Program {
        lane: u32,
        now: u64,
        depth: u32,
        records: Vec<Record>,
    }

    impl Program {
        fn region(&mut self, point: u32, inside: impl Fn(&mut Self)) {
            let start = self.now;
            self.depth += 1;
            self.now += 10;
            inside(self);
            self.now += 10;
            self.depth -= 1;
            let (lane, depth, span) = (self.lane, self.depth, self.now - start);
            let record = Record { lane, point, start, span, exclusive: 0, depth, context: 0 };
            self.records.push(record);
        }
    }

    fn related(point: Option<u32>, count: u64, span: u64) -> Related {
        Related { point, count, span }
    }

    #[test]
    fn callers_and_children_are_those_of_the_program() {
        let mut program = Program { lane: 0, now: 0, depth: 0, records: Vec::new() };
        for lane in 0..2 {
            program.lane = lane;
            for _ in 0..3 {
                program.region(1, |program| {
                    program.region(2, |program| program.region(3, |_| {}));
                    program.region(2, |_| {});
                    program.region(4, |_| {});
                });
                program.region(2, |_| {});
            }
        }
        let two = Calls::of(2, &program.records);
        assert_eq!(two.records, 18);
        assert_eq!(two.callers, [related(Some(1), 12, 6 * (40 + 20)), related(None, 6, 6 * 20)]);
        assert_eq!(two.children, [related(Some(3), 6, 6 * 20)]);
        let one = Calls::of(1, &program.records);
        assert_eq!(one.callers, [related(None, 6, one.span)]);
        assert_eq!(
            one.children,
            [related(Some(2), 12, 6 * (40 + 20)), related(Some(4), 6, 6 * 20)]
        );
        assert_eq!(Calls::of(9, &program.records), Calls::default());
    }

    #[test]
    fn recursion_is_its_own_caller() {
        let mut program = Program { lane: 0, now: 0, depth: 0, records: Vec::new() };
        program.region(1, |program| program.region(1, |program| program.region(1, |_| {})));
        let calls = Calls::of(1, &program.records);
        assert_eq!(calls.callers, [related(Some(1), 2, 40 + 20), related(None, 1, 60)]);
        assert_eq!(calls.children, [related(Some(1), 2, 40 + 20)]);
    }

    /// The ring has overwritten the beginning, and the caller has not ended yet.
    #[test]
    fn a_caller_that_is_not_there_is_no_other() {
        let record = |point, start, span, depth| Record {
            lane: 0,
            point,
            start,
            span,
            exclusive: 0,
            depth,
            context: 0,
        };
        // 7 is inside a region at depth 0 that is still open; 8 came before and does
        // not enclose it.
        let records = [record(8, 0, 100, 0), record(7, 200, 50, 1)];
        assert_eq!(Calls::of(7, &records).callers, [related(None, 1, 50)]);
        assert_eq!(Calls::of(8, &records).children, []);
        // Two levels up is not its caller.
        let records = [record(7, 10, 50, 2), record(8, 0, 100, 0)];
        assert_eq!(Calls::of(7, &records).callers, [related(None, 1, 50)]);
        // Nonsense out of a damaged file.
        let records = [record(7, u64::MAX, u64::MAX, u32::MAX), record(7, 0, 0, u32::MAX)];
        assert_eq!(Calls::of(7, &records).records, 2);
    }
}
