//! Prints the figures of this process in the format that timers of HPC programs use: JSON, by
//! thread and label.

use std::io::{self, Write};

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::cell::Sums;
use pfp_shm_layout::heap;
use pfp_shm_layout::reader::{CellReading, Picture, PointPicture};

use super::TupleSums;
use super::json::Json;
use crate::engine::cold;
use crate::engine::process::Process;

/// Prints the figures of a process.
pub(crate) fn show(process: &Process, out: &mut impl Write) -> io::Result<()> {
    cold::uncancelled(|| show_uncancelled(process, out))
}

fn show_uncancelled(process: &Process, out: &mut impl Write) -> io::Result<()> {
    process.refine_rate();
    let reader = super::polled(process)?;
    let picture = reader.picture();
    let point = |id: u32| {
        let place = picture.points.binary_search_by_key(&id, |point| point.id).ok()?;
        Some(&picture.points[place])
    };
    // The whole text is composed before it is written, since `out` may be slow, such as a terminal.
    let mut json = Json::new(GrowingText(Vec::new()));
    json.list(&picture.lanes, |json, lane| {
        let cells = picture.cells.iter().filter(|cell| cell.lane == lane.id && !cell.is_part);
        let cells = cells.filter(|cell| cell.all_owners().0.count > 0);
        let mut labelled =
            heap::collect(cells.filter_map(|cell| Some((point(cell.point)?, cell))))?;
        labelled.sort_unstable_by_key(|(point, cell)| (&*point.name, cell.point));
        json.object(|json| {
            for of_label in labelled.chunk_by(|(one, _), (other, _)| one.name == other.name) {
                let rows = of_label.iter().flat_map(|(point, cell)| rows(picture, point, cell));
                json.text_name(&of_label[0].0.name)?
                    .list(rows, |json, row| json.object(|json| row.write(json)))?;
            }
            Ok(())
        })
    })?;
    out.write_all(&json.end()?.0)
}

/// A text that grows as long as memory is available.
struct GrowingText(Vec<u8>);

impl Write for GrowingText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_reserve(bytes.len())?;
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The calls of a label that have the same amounts.
struct Row<'a> {
    names: &'a [String],
    /// The amounts of one call.
    amounts: Amounts,
    sums: Sums,
    ticks_per_second: f64,
}

fn rows<'a>(
    picture: &'a Picture,
    point: &'a PointPicture,
    cell: &'a CellReading,
) -> impl Iterator<Item = Row<'a>> {
    let ticks_per_second = picture.clock.ticks_per_second;
    let names = point.amounts.as_slice();
    let alone = names.is_empty().then(|| {
        let (sums, _) = cell.all_owners();
        Row { names, amounts: Amounts::default(), sums, ticks_per_second }
    });
    let parts = cell.parts.iter().map(|place| &picture.cells[*place as usize]);
    let parts = parts.filter(|_| !names.is_empty()).filter_map(|part| TupleSums::of(part, picture));
    alone.into_iter().chain(parts.map(move |part| {
        let calls = if part.each { 1 } else { part.sums.count.max(1) };
        let amounts = part.amounts.map(|sum| sum / calls);
        Row { names, amounts, sums: part.sums, ticks_per_second }
    }))
}

impl Row<'_> {
    fn write<W: Write>(&self, json: &mut Json<W>) -> io::Result<()> {
        let of = |name: &str| {
            let place = self.names.iter().position(|known| known == name);
            place.and_then(|place| self.amounts.get(place)).copied()
        };
        let seconds = |ticks: f64| ticks / self.ticks_per_second;
        let sums = &self.sums;
        json.plain("Bytes", of("bytes").unwrap_or(0))?;
        json.plain("Flops", of("flops").unwrap_or(0))?;
        json.plain("Calls", sums.count)?;
        json.float("Min", seconds(sums.min as f64))?;
        json.float("Max", seconds(sums.max as f64))?;
        json.float("Avg", seconds(sums.mean().unwrap_or(0.0)))?;
        json.float("Stddev", seconds(sums.variance().unwrap_or(0.0).sqrt()))?;
        let others = self.names.iter().zip(&self.amounts);
        for (name, amount) in
            others.filter(|(name, _)| !["bytes", "flops"].contains(&name.as_str()))
        {
            json.text_name(name)?.bare(format_args!("{amount}"))?;
        }
        Ok(())
    }
}
