//! The roofline: what the machine can do at most, and the points below that.

use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Instant;

use super::{App, Screen};
use crate::model::{FLOPS, Figures};
use crate::roofline::{self, Ceilings, Dot};

/// What the roofline shows.
#[derive(Debug, Default)]
pub struct Roofline {
    /// None until they are measured, or read.
    pub ceilings: Option<Ceilings>,
    /// The points that tell of bytes and of floating-point operations, in the order of
    /// the rows.
    pub dots: Vec<(u32, Dot)>,
    /// Their ids.
    order: Vec<u32>,
    /// Where the ceilings will come from.
    measuring: Option<Receiver<Ceilings>>,
}

impl Roofline {
    /// Whether the ceilings are being measured.
    pub fn is_measuring(&self) -> bool {
        self.measuring.is_some()
    }

    /// Ids of the points in the order of the rows.
    pub(super) fn order(&self) -> &[u32] {
        &self.order
    }
}

impl App {
    pub(super) fn begin_roofline(&mut self) {
        self.offset = 0;
        if self.roofline.ceilings.is_none()
            && let Some(path) = &self.common.options.ceilings
        {
            self.roofline.ceilings = Ceilings::load(path);
        }
        self.arrange_roofline();
    }

    /// Puts the rows in order, those that took most time first, or keeps them where
    /// they are while the cursor moves.
    pub(super) fn arrange_roofline(&mut self) {
        if self.screen != Screen::Roofline {
            return;
        }
        let Some(snapshot) = self.common.model.snapshot() else { return };
        let rate = snapshot.clock.ticks_per_second;
        let shown =
            self.common.model.points().iter().filter(|figures| self.common.filter.admits(figures));
        let mut dots: Vec<(u32, Dot)> =
            shown.filter_map(|figures| Some((figures.id(), dot(figures, rate)?))).collect();
        let known = &self.roofline.order;
        let place = |id: u32| match self.common.frozen_until {
            Some(_) => known.iter().position(|known| *known == id).unwrap_or(usize::MAX),
            None => 0,
        };
        dots.sort_by(|(a, x), (b, y)| {
            place(*a).cmp(&place(*b)).then(y.seconds.total_cmp(&x.seconds)).then(a.cmp(b))
        });
        self.roofline.order = dots.iter().map(|(id, _)| *id).collect();
        self.roofline.dots = dots;
        if !self.common.selected.is_some_and(|id| self.roofline.order.contains(&id)) {
            self.common.selected = self.roofline.order.first().copied().or(self.common.selected);
        }
    }

    /// Measures what the machine can do at most, beside the screen.
    pub(super) fn measure_ceilings(&mut self, now: Instant) {
        if self.roofline.is_measuring() {
            return;
        }
        let (sender, receiver) = channel();
        let path = self.common.options.ceilings.clone();
        let measure = move || {
            let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
            let ceilings = roofline::measure(threads, |_| ());
            if let Some(path) = path {
                // Who cannot keep them measures them again.
                let _ = ceilings.save(&path);
            }
            let _ = sender.send(ceilings);
        };
        match std::thread::Builder::new().name("ceilings".into()).spawn(measure) {
            Ok(_) => {
                self.roofline.measuring = Some(receiver);
                self.common
                    .say(now, "measuring for some seconds; all processors are busy meanwhile");
            }
            Err(error) => self.common.complain(now, format!("no thread can be started: {error}")),
        }
    }

    /// Takes the ceilings that were measured.
    pub(super) fn take_ceilings(&mut self, now: Instant) {
        let Some(receiver) = &self.roofline.measuring else { return };
        match receiver.try_recv() {
            Ok(ceilings) => {
                self.roofline.ceilings = Some(ceilings);
                self.common.say(now, "the ceilings are measured");
            }
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => self.common.complain(now, "measuring has failed"),
        }
        self.roofline.measuring = None;
    }
}

/// A point below the roof, if it tells of bytes and of floating-point operations.
pub(crate) fn dot(figures: &Figures, ticks_per_second: f64) -> Option<Dot> {
    Some(Dot {
        label: figures.name(),
        intensity: figures.intensity()?,
        flops_per_second: figures.amount(FLOPS)?.per_cpu_second?,
        seconds: figures.total().exclusive as f64 / ticks_per_second,
    })
}
