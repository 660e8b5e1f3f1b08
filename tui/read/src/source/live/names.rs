//! Readable names of a process's points.
//!
//! The names of parallel regions come from the object files of the program. The kernel's list of a
//! process's objects waits while the process changes its memory, the disk may hang, and debug
//! information may be gigabytes. So a thread of its own looks these names up.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::snapshot::Point;
use crate::source::place::{Objects, is_region, locate};
use crate::source::symbol::readable;

/// Readable names of points. Each name is translated only once.
#[derive(Default)]
pub(super) struct Names {
    /// Each point's name and, if it differs, its readable name.
    known: Vec<(String, Option<String>)>,
    /// The numbers of parallel regions that are still to be looked up.
    regions: Vec<usize>,
    /// The lookup that runs.
    lookup: Option<Receiver<Vec<Found>>>,
}

/// The number of a parallel region, its name, and its place in the source.
type Found = (usize, String, String);

impl Names {
    /// Gives points their readable names. A parallel region that is not found within `timeout`
    /// gets its readable name at a later call.
    pub(super) fn show(&mut self, points: &mut [Point], objects: Objects, timeout: Duration) {
        self.known.resize_with(points.len(), Default::default);
        for (number, (point, (name, shown))) in points.iter().zip(&mut self.known).enumerate() {
            if point.name != *name {
                *shown = readable(&point.name);
                name.clone_from(&point.name);
                if is_region(point) {
                    self.regions.push(number);
                }
            }
        }
        self.receive(Duration::ZERO);
        if self.lookup.is_none() && !self.regions.is_empty() {
            let regions = std::mem::take(&mut self.regions).into_iter();
            let regions = regions.filter_map(|number| Some((number, points.get(number)?.clone())));
            self.look_up(regions.collect(), objects);
            self.receive(timeout);
        }
        for (point, (name, shown)) in points.iter_mut().zip(&self.known) {
            if is_region(point) {
                point.reported = Some(name.clone());
            }
            if let Some(shown) = shown {
                point.name.clone_from(shown);
            }
        }
    }

    fn look_up(&mut self, regions: Vec<(usize, Point)>, objects: Objects) {
        let (result, lookup) = channel();
        let look_up = move || {
            let (numbers, points): (Vec<_>, Vec<_>) = regions.into_iter().unzip();
            let places = locate(&points, objects).into_iter();
            let found = |(at, place): (usize, String)| {
                let (number, point) = (*numbers.get(at)?, points.get(at)?);
                Some((number, point.name.clone(), place))
            };
            // If the viewer has stopped watching the process, the result is dropped.
            let _ = result.send(places.filter_map(found).collect());
        };
        // Without a thread, the names stay as the program reports them.
        if thread::Builder::new().name("pfp-names".to_owned()).spawn(look_up).is_ok() {
            self.lookup = Some(lookup);
        }
    }

    /// Takes the result of the lookup, if it arrives within `timeout`.
    fn receive(&mut self, timeout: Duration) {
        let Some(lookup) = &self.lookup else { return };
        let found = match lookup.recv_timeout(timeout) {
            Ok(found) => found,
            Err(RecvTimeoutError::Timeout) => return,
            Err(RecvTimeoutError::Disconnected) => Vec::new(),
        };
        self.lookup = None;
        for (number, name, place) in found {
            if let Some((known, shown)) = self.known.get_mut(number)
                && *known == name
            {
                *shown = Some(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::OPENMP;

    const NOWHERE: Objects = Objects { running: None, started_unix_ns: None };

    fn points(names: &[&str]) -> Vec<Point> {
        let file = format!("{OPENMP}:/no/such/file");
        let point = |name: &&str| Point {
            name: (*name).to_owned(),
            file: file.clone(),
            ..Point::default()
        };
        names.iter().map(point).collect()
    }

    fn shown(names: &mut Names, of: &[&str]) -> Vec<String> {
        let mut points = points(of);
        names.show(&mut points, NOWHERE, Duration::ZERO);
        assert_eq!(points[0].reported.as_deref(), Some(of[0]));
        points.into_iter().map(|point| point.name).collect()
    }

    #[test]
    fn names_that_are_late_are_shown_when_they_arrive() {
        let mut names = Names::default();
        let (program, lookup) = channel();
        names.lookup = Some(lookup);
        let read = ["app+0x10", "_ZN1a1bEv"];
        assert_eq!(shown(&mut names, &read), ["app+0x10", "a::b()"]);
        let found = (0, "app+0x10".to_owned(), "solve app.c:7".to_owned());
        // The second result is about a name that the point had before.
        let stale = (1, "app+0x20".to_owned(), "main app.c:3".to_owned());
        program.send(vec![found, stale]).unwrap();
        assert_eq!(shown(&mut names, &read), ["solve app.c:7", "a::b()"]);
        assert_eq!(shown(&mut names, &read), ["solve app.c:7", "a::b()"]);
        // The regions that came during the first lookup were looked up by another one.
        assert!(names.regions.is_empty());
    }
}
