//! Records: single measurements of a lane.

use serde::{Deserialize, Serialize};

/// One finished measurement out of a lane's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Id of the lane.
    pub lane: u32,
    /// Id of the point.
    pub point: u32,
    /// Begin, in ticks since the segment was created.
    pub start: u64,
    /// Ticks from begin to end, time off the CPU included.
    pub span: u64,
    /// Exclusive ticks.
    pub exclusive: u64,
    /// Number of regions that were open around it.
    pub depth: u32,
    /// Id of the context, 0 for the thread's own.
    pub context: u32,
}

impl Record {
    /// The moment of its end, ticks since the segment was created.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.span)
    }

    /// Moves the record to a snapshot that begins `ticks` later. False if the region began before.
    pub fn move_after(&mut self, ticks: u64) -> bool {
        let start = self.start.checked_sub(ticks);
        self.start = start.unwrap_or_default();
        start.is_some()
    }
}

/// New records of one lane's ring. A lane's records are numbered from 0 on as they are written. Of
/// the records from number `from` to the lane's `records_written`, the first `lost` are lost, and
/// `records` has the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// Id of the lane.
    pub lane: u32,
    /// Number of the first record that the caller has not read before.
    pub from: u64,
    /// Number of records that were overwritten before they could be read.
    pub lost: u64,
    /// The other records, oldest first. In a file they are rows of point, start, span, exclusive
    /// ticks, depth and context, as in [`Record`].
    #[serde(with = "rows")]
    pub records: Vec<Record>,
}

impl Drained {
    /// Sets the lane of the records, since files and messages leave it out.
    pub fn own(&mut self) {
        self.records.iter_mut().for_each(|record| record.lane = self.lane);
    }

    /// Number of the first record that follows these: the `from` of the next call.
    pub fn next(&self) -> u64 {
        self.from.saturating_add(self.lost).saturating_add(self.records.len() as u64)
    }
}

/// Records of one lane as rows of numbers.
mod rows {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Record;

    pub(super) fn serialize<S: Serializer>(records: &[Record], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(records.iter().map(|r| {
            [u64::from(r.point), r.start, r.span, r.exclusive, r.depth.into(), r.context.into()]
        }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Vec<Record>, D::Error> {
        let rows = Vec::<(u32, u64, u64, u64, u32, u32)>::deserialize(input)?;
        let record = |(point, start, span, exclusive, depth, context)| Record {
            // `Drained::own` sets the lane.
            lane: 0,
            point,
            start,
            span,
            exclusive,
            depth,
            context,
        };
        Ok(rows.into_iter().map(record).collect())
    }
}
