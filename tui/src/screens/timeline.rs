//! The timeline: the threads' regions in the last moments.

mod draw;
mod place;

use std::collections::HashSet;

use crate::common::{Overlay, Prompt, PromptSubject};
use crate::screens::prelude::*;

pub use self::place::TimeView;

const TIMELINE_RAN: &str = "the thread was on the CPU nearly always, sometimes, or hardly ever; \
                            the rest of the time it was off the CPU, or in another context";
const TIMELINE_MANY: &str = "nine regions of a point, too short to draw separately";

groups! {
    TIME = own {
        Earlier [Named(Left), Char('h')] "earlier", "the previous region; pauses until End";
        Later [Named(Right), Char('l')] "later", "the next region";
        ZoomIn [Char('+'), Char('=')] "closer", "closer, half the time or less";
        ZoomOut [Char('-')] "wider", "wider, twice the time or more";
        FindNext [Char('n')] "", "the next earlier region that matches /";
        Slowest [Char('X')] "", "the slowest known call of this point, by the clock";
        MuchEarlier [Named(PageUp), Ctrl('b')] "", "half a screen earlier";
        MuchLater [Named(PageDown), Ctrl('f')] "", "half a screen later";
        Oldest [Named(Home), Twice('g')] "", "the oldest region of the line";
        Newest [Named(End), Char('G')] "now", "go to now, and follow it";
    }
}

/// The timeline of the threads' last moments.
#[derive(Debug, Default)]
pub struct TimelineView {
    /// The part of the timeline on the screen, and the cursor.
    pub at: TimeView,
}

impl TimelineView {
    /// Goes to the next earlier region that matches, or else to the newest one.
    fn find_next(&mut self, common: &mut Common) {
        let filter = self.at.sought().clone();
        if !filter.is_on() {
            return common.say("/ finds a region by the name of its point");
        }
        let points = common.model.points().iter();
        let wanted: HashSet<u32> = points.filter(|f| filter.admits(f)).map(Figures::id).collect();
        if !self.at.go_to_one_of(&wanted) {
            common.say(format!("no region is known of {}", filter.text()));
        }
    }
}

impl View for TimelineView {
    fn keys(&self) -> KeyMap {
        &[
            &[keys::RUN, keys::OPEN, TIME, keys::BACK],
            keys::CHANGE,
            &[keys::SAVE, keys::BASELINE, keys::WALK, keys::SHOW],
            &[keys::TURN, keys::LEAVE, keys::TERMINAL],
        ]
    }

    fn legend(&self, styles: &Styles) -> Vec<(String, &'static str)> {
        let glyphs = &styles.glyphs;
        let of = |signs: &[char]| signs.iter().map(char::to_string).collect::<Vec<_>>().join(" ");
        vec![
            (of(&glyphs.ran), TIMELINE_RAN),
            (format!("{}name", glyphs.edge), "start of a region; a short one shows only initials"),
            (format!("{}name{}9", glyphs.many, glyphs.times), TIMELINE_MANY),
            (of(&[glyphs.lost]), "overwritten by newer records in the thread's ring"),
        ]
    }

    fn forget(&mut self) {
        *self = Self::default();
    }

    fn wants_records(&self) -> bool {
        true
    }

    fn take_records(&mut self, snapshot: &Snapshot) {
        self.at.take(snapshot);
    }

    /// The point of the region under the cursor.
    fn target_point(&self, _: &Common) -> Option<u32> {
        Some(self.at.region()?.1.point)
    }

    fn act(&mut self, action: Action, common: &mut Common) -> Outcome {
        let region = self.at.region().map(|(_, region)| region.point);
        match (action, region) {
            (
                Action::Toggle
                | Action::Reset
                | Action::Fence
                | Action::CountAllocs
                | Action::Slowest,
                None,
            ) => {
                common.say("there is no region under the cursor");
            }
            // A point that is off has no newer regions. Hold the picture, so that the same key
            // switches the same point on again.
            (Action::Toggle, Some(_)) => {
                self.at.hold();
                return Outcome::Pass;
            }
            (Action::Slowest, Some(point)) => {
                self.at.go_to_slowest(point);
                let name =
                    common.model.point(point).map_or_else(String::new, |it| common.full_name(it));
                common.say(format!("the slowest call of {name} that is still known"));
            }
            (Action::Open, Some(point)) => {
                common.selected = Some(point);
                return Outcome::Show(Screen::Detail);
            }
            (Action::Filter, _) => {
                return Outcome::Ask(Overlay::Typed(Prompt::new(
                    PromptSubject::Find("find"),
                    self.at.sought().text(),
                )));
            }
            (Action::FindNext, _) => self.find_next(common),
            (Action::Earlier, _) => self.at.step(false),
            (Action::Later, _) => self.at.step(true),
            (Action::MuchEarlier, _) => self.at.pan(false),
            (Action::MuchLater, _) => self.at.pan(true),
            (Action::Oldest, _) => self.at.go_to_oldest(),
            (Action::Newest, _) => self.at.follow(),
            (Action::ZoomIn, _) => self.at.zoom(true),
            (Action::ZoomOut, _) => self.at.zoom(false),
            _ => return Outcome::Pass,
        }
        Outcome::Done
    }

    /// Goes to the newest region that matches the typed text.
    fn find(&mut self, typed: Prompt, common: &mut Common) -> Outcome {
        match Filter::new(&typed.text()) {
            Ok(points) => self.at.seek(points),
            Err(why) => return Outcome::Ask(typed.refused(why)),
        }
        self.find_next(common);
        Outcome::Done
    }

    fn cursor(&self, _: &Common) -> (usize, usize) {
        self.at.cursor()
    }

    fn select(&mut self, place: usize, _: &mut Common) {
        self.at.select_line(place);
    }

    fn rows(&self, body: Rect) -> Rect {
        draw::rows(body)
    }

    fn hit(&self, at: Position, body: Rect, common: &Common) -> MouseTarget {
        let rows = self.rows(body);
        let place = common.scroll.offset + usize::from(at.y.saturating_sub(rows.y));
        let line = (rows.contains(at) && place < self.at.cursor().1).then_some(place);
        // The axis, and the room below the last line, have moments as well.
        let moment = draw::moment_at(self, body, (at.x - body.x).into());
        match (line, moment.filter(|_| at.y < rows.bottom() && self.at.picture().is_some())) {
            (_, Some(moment)) => MouseTarget::Moment(line, moment),
            (Some(place), None) => MouseTarget::Row(place),
            (None, None) => MouseTarget::Nothing,
        }
    }

    fn click(&mut self, target: MouseTarget, common: &mut Common) -> Outcome {
        let MouseTarget::Moment(Some(line), moment) = target else {
            return view::click_table(self, target, common);
        };
        self.at.click(line, moment);
        Outcome::Done
    }

    fn wheel(&mut self, up: bool, target: MouseTarget, _: &mut Common) -> Outcome {
        let MouseTarget::Moment(_, moment) = target else { return Outcome::Pass };
        self.at.zoom_around(up, Some(moment));
        Outcome::Done
    }

    fn drag(&mut self, from: MouseTarget, to: MouseTarget, _: &mut Common) -> Outcome {
        let (MouseTarget::Moment(_, from), MouseTarget::Moment(_, to)) = (from, to) else {
            return Outcome::Pass;
        };
        self.at.drag(from, to);
        Outcome::Done
    }

    fn draw(&self, frame: &mut Frame, body: Rect, common: &Common) {
        draw::draw(self, frame, body, common);
    }
}
