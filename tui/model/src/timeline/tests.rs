use super::columns::{TimelineColumn, TimelineWindow, columns, runs};
use super::*;
use pfp_read::source::Source;
use pfp_read::source::synthetic::Synthetic;

fn record(start: u64, span: u64, exclusive: u64, depth: u32) -> Record {
    Record { lane: 0, point: depth.wrapping_add(1), start, span, exclusive, depth, context: 0 }
}

fn snapshot(records: &[Record]) -> Snapshot {
    let mut snapshot = Synthetic::new().poll().unwrap();
    snapshot.clock.overhead_pair = 0;
    // At this rate, two microseconds, the shortest absence, are 2 ticks.
    snapshot.clock.ticks_per_second = 1e6;
    snapshot.elapsed_ticks = 1000;
    snapshot.lanes.truncate(1);
    snapshot.lanes[0].records_written = records.len() as u64;
    snapshot.records = records.to_vec();
    snapshot
}

fn track(records: &[Record]) -> ThreadTrack {
    Timeline::of(&snapshot(records), None).tracks.remove(0)
}

fn window(from: u64, ticks: u64, columns: usize) -> TimelineWindow {
    TimelineWindow { from, ticks, columns }
}

/// One character for each column: a letter for a single region, by its index; `*` for several; and
/// a blank for none.
fn drawn(level: &TimelineLevel, columns: &[TimelineColumn], window: TimelineWindow) -> String {
    let mut text = vec![' '; columns.len()];
    for run in runs(level, columns, window) {
        for column in run.columns {
            text[column] = match run.many {
                Some(_) => '*',
                None => char::from(b'a' + run.region as u8),
            };
        }
    }
    text.into_iter().collect()
}

#[test]
fn a_file_without_records_has_lost_nothing() {
    let mut snapshot = snapshot(&[]);
    assert!(!Timeline::of(&snapshot, None).lacks_records, "nothing was written");
    snapshot.lanes[0].records_written = 5;
    let timeline = Timeline::of(&snapshot, None);
    assert!(timeline.lacks_records);
    snapshot.records.push(record(100, 20, 20, 0));
    assert!(!Timeline::of(&snapshot, None).lacks_records);
}

#[test]
fn regions_lie_at_their_depths_in_the_order_of_their_starts() {
    let track = track(&[
        record(120, 20, 20, 1),
        record(150, 30, 10, 1),
        record(100, 100, 50, 0),
        record(300, 10, 10, 0),
    ]);
    let starts: Vec<Vec<u64>> = track
        .levels
        .iter()
        .map(|level| level.regions.iter().map(|region| region.start).collect())
        .collect();
    assert_eq!(starts, [vec![100, 300], vec![120, 150]]);
    let outer = track.levels[0].regions[0];
    // The region is 100 long with 50 in regions inside, so its own 50 were on a CPU.
    assert_eq!((outer.nested, outer.away), (50, Some(0)));
    assert_eq!(track.levels[1].regions[1].away, Some(20));
    assert_eq!((track.lost, track.lost_until), (0, None));
}

#[test]
fn lost_records_do_not_count_as_absence() {
    let mut snapshot = snapshot(&[record(190, 10, 10, 1), record(100, 200, 20, 0)]);
    snapshot.lanes[0].records_written = 12;
    let track = Timeline::of(&snapshot, None).tracks.remove(0);
    assert_eq!((track.lost, track.lost_until), (10, Some(200)));
    // The regions inside that ended before 200 are lost, so its absence is unknown.
    assert_eq!(track.levels[0].regions[0].away, None);

    snapshot.records.clear();
    let timeline = Timeline::of(&snapshot, None);
    assert_eq!(timeline.tracks[0].lost_until, Some(1000));
    assert_eq!(timeline.reach(), 0);
}

#[test]
fn absence_is_not_the_cost_of_measuring() {
    let mut snapshot = snapshot(&[record(110, 10, 10, 1), record(100, 100, 81, 0)]);
    assert_eq!(Timeline::of(&snapshot, None).tracks[0].levels[0].regions[0].away, Some(9));
    snapshot.clock.overhead_pair = 4;
    assert_eq!(Timeline::of(&snapshot, None).tracks[0].levels[0].regions[0].away, Some(0));
}

#[test]
fn columns_show_where_regions_are_and_how_much_they_ran() {
    let track = track(&[
        record(120, 40, 0, 1),
        record(100, 100, 60, 0),
        record(300, 50, 50, 0),
        record(350, 50, 50, 0),
    ]);
    let window = window(100, 400, 40);
    let levels = columns(&track, window);
    let text = drawn(&track.levels[0], &levels[0], window);
    assert_eq!(text, "aaaaaaaaaa          bbbbbccccc          ");
    assert_eq!(drawn(&track.levels[1], &levels[1], window).trim_end(), "  aaaa");
    let shares: Vec<f64> = levels[0][..10].iter().map(TimelineColumn::on_share).collect();
    // The outer region waits while its inner region waits.
    assert_eq!(shares, [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
    assert!(levels[1][2..6].iter().all(|column| column.on_share() == 0.0));
}

#[test]
fn many_in_a_column_are_counted_as_one_run() {
    let records: Vec<Record> = (0..400).map(|n| record(2 * n, 1, 1, 0)).collect();
    let track = track(&records);
    let window = window(0, 800, 8);
    let levels = columns(&track, window);
    let found = runs(&track.levels[0], &levels[0], window);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].columns.clone(), found[0].many), (0..8, Some(400)));
    // The regions were on no CPU for half of the time.
    assert!(levels[0].iter().all(|column| (column.on_share() - 0.5).abs() < 1e-6));
}

#[test]
fn tasks_of_one_thread_do_not_lie_on_each_other() {
    let task = |context, start, span| Record { context, ..record(start, span, 5, 0) };
    let track =
        track(&[task(7, 100, 200), task(8, 150, 200), task(9, 400, 50), record(500, 10, 10, 0)]);
    let found: Vec<(u32, Vec<u32>)> = track
        .levels
        .iter()
        .map(|level| (level.strand, level.regions.iter().map(|r| r.context).collect()))
        .collect();
    assert_eq!(found, [(0, vec![0]), (1, vec![7, 9]), (2, vec![8])]);
}

/// The lines of devices are below the lines of the thread and its tasks, whatever their times. The
/// records of devices do not change the moment up to which records are lost.
#[test]
fn devices_have_lines_of_their_own() {
    const DEVICE: u32 = 4;
    let work =
        |context, start, span| Record { point: DEVICE, context, ..record(start, span, span, 0) };
    let task = Record { context: 7, ..record(100, 200, 5, 0) };
    // Timers 8 and 9 run at the same time, and timer 10 after them.
    let records = [
        record(90, 300, 300, 0),
        work(8, 20, 100),
        work(8, 150, 100),
        work(9, 110, 50),
        work(10, 300, 10),
        task,
    ];
    let mut snapshot = snapshot(&records);
    snapshot.lanes[0].records_written += 3;
    let device = snapshot.points.iter_mut().find(|point| point.id == DEVICE).unwrap();
    device.device = true;
    let track = Timeline::of(&snapshot, None).tracks.remove(0);
    let found: Vec<(u32, Option<u32>, Vec<u32>)> = track
        .levels
        .iter()
        .map(|level| {
            (level.strand, level.device, level.regions.iter().map(|r| r.context).collect())
        })
        .collect();
    let expected = [
        (0, None, vec![0]),
        (1, None, vec![7]),
        (2, Some(1), vec![8, 8, 10]),
        (3, Some(2), vec![9]),
    ];
    assert_eq!(found, expected);
    assert_eq!(track.lost_until, Some(300), "of the thread's own records");

    // Timer 8 stays above timer 9, although the ring has lost timer 8's oldest record.
    snapshot.records.remove(1);
    let track = Timeline::of(&snapshot, None).tracks.remove(0);
    let first = track.levels.iter().find(|level| level.device == Some(1)).unwrap();
    assert_eq!(first.regions[0].context, 8);

    // Without other regions, the thread's line is still the first.
    snapshot.records.retain(|record| record.point == DEVICE);
    let track = Timeline::of(&snapshot, None).tracks.remove(0);
    let devices: Vec<Option<u32>> = track.levels.iter().map(|level| level.device).collect();
    assert_eq!(devices, [None, Some(1), Some(2)]);
    assert_eq!(track.lost_until, Some(1000), "nobody knows until when");
}

#[test]
fn lines_stay_when_their_regions_are_overwritten() {
    let first = Timeline::of(&snapshot(&[record(1, 1, 1, 3), record(0, 9, 8, 2)]), None);
    let later = Timeline::of(&snapshot(&[record(500, 1, 1, 2)]), Some(&first));
    let depths: Vec<u32> = later.lines().map(|line| line.depth).collect();
    assert_eq!(depths, [2, 3]);
    // The lines of another thread are separate.
    let mut other = snapshot(&[record(500, 1, 1, 2)]);
    other.lanes[0].tid += 1;
    assert_eq!(Timeline::of(&other, Some(&first)).lines().count(), 1);
}

#[test]
fn the_nearest_region_is_found() {
    let track = track(&[record(100, 10, 10, 0), record(200, 10, 10, 0), record(300, 10, 10, 0)]);
    let level = &track.levels[0];
    for (at, place) in [(0, 0), (105, 0), (150, 0), (170, 1), (209, 1), (290, 2), (9999, 2)] {
        assert_eq!(level.nearest(at), Some(place), "{at}");
    }
    assert_eq!(TimelineLevel::default().nearest(5), None);
}

#[test]
fn arbitrary_records_can_be_drawn() {
    let most = u64::MAX;
    let mut hostile = vec![
        record(most, most, most, 255),
        record(0, most, 0, 0),
        record(0, most, most, 0),
        record(500, 0, 0, 1),
        record(500, 0, 7, 1),
        record(900, 100, 10, 2),
        record(100, 900, 10, 2),
        record(950, 1, 999, 3),
        Record { lane: 77, point: most as u32, context: 5, ..record(5, 5, 5, 5) },
        Record { point: u32::MAX, context: u32::MAX, ..record(most - 1, 3, 9, u32::MAX) },
    ];
    // Pseudo-random records beside them, in forward and backward order.
    let mut seed = 7_u64;
    for _ in 0..2000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bits = seed >> 20;
        hostile.push(Record {
            context: bits as u32 % 3,
            ..record(bits % 1200, (bits >> 11) % 700, (bits >> 21) % 900, (bits >> 31) as u32 % 256)
        });
    }
    let mut snapshot = snapshot(&hostile);
    for written in [0, 5, most] {
        for rate in [0.0, f64::NAN, f64::INFINITY, 1e-300, 2.6e9] {
            snapshot.clock.ticks_per_second = rate;
            snapshot.lanes[0].records_written = written;
            let timeline = Timeline::of(&snapshot, None);
            assert!(timeline.ticks_per_second > 0.0 && timeline.ticks(1) > 0);
            for track in &timeline.tracks {
                for window in [window(0, 1, 1), window(400, 300, 50), window(most, most, 9)] {
                    let columns = columns(track, window);
                    for (level, columns) in track.levels.iter().zip(&columns) {
                        assert!(level.regions.is_sorted_by_key(|region| region.start));
                        assert!(level.regions.iter().all(|region| region.end >= region.start));
                        assert!(columns.iter().all(|c| (0.0..=1.0).contains(&c.on_share())));
                        for run in runs(level, columns, window) {
                            assert!(run.columns.end <= window.columns && !run.columns.is_empty());
                        }
                    }
                }
            }
        }
    }
}
