//! Switched points that viewers left behind when they were killed.

use pfp_read::snapshot::{Point, PointState};
use pfp_read::text;

/// Points that are still in the state in which killed viewers left them. If some of these points
/// are off and others are on, only the points that are off are listed.
#[derive(Debug)]
pub struct LeftOver {
    /// Ids of the points; never empty.
    pub ids: Vec<u32>,
    /// Whether the points are on.
    pub on: bool,
}

impl LeftOver {
    /// The points that killed viewers left switched. `None` if there are none.
    pub fn of<'a>(points: impl Iterator<Item = &'a Point> + Clone) -> Option<Self> {
        [PointState::Off, PointState::On].into_iter().find_map(|state| {
            let left = points.clone().filter(|point| point.left_over && point.state == state);
            let ids: Vec<u32> = left.map(|point| point.id).collect();
            (!ids.is_empty()).then_some(Self { ids, on: state == PointState::On })
        })
    }

    /// A description, as in `24 points are off, left by a viewer that was killed`.
    pub fn text(&self) -> String {
        let count = text::counted(self.ids.len(), "point");
        let (are, state) = (if self.ids.len() == 1 { "is" } else { "are" }, word(self.on));
        format!("{count} {are} {state}, left by a viewer that was killed")
    }

    /// The description, with the key that switches the points back.
    pub fn text_with_key(&self, key: &str) -> String {
        let them = if self.ids.len() == 1 { "it" } else { "them" };
        format!("{}; {key} switches {them} {}", self.text(), word(!self.on))
    }
}

fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn left_over_points_are_counted_by_state() {
        let point = |id: u32, state, left_over| Point { id, state, left_over, ..Point::default() };
        use PointState::{Off, On};
        let mut points = vec![point(1, On, true), point(2, Off, false), point(3, Off, true)];
        let text =
            |points: &[Point]| LeftOver::of(points.iter()).map(|left| left.text_with_key("E"));
        let one = "1 point is off, left by a viewer that was killed; E switches it on";
        assert_eq!(text(&points).as_deref(), Some(one));
        points.push(point(4, Off, true));
        let two = "2 points are off, left by a viewer that was killed; E switches them on";
        assert_eq!(text(&points).as_deref(), Some(two));
        let on = "1 point is on, left by a viewer that was killed; E switches it off";
        assert_eq!(text(&points[..2]).as_deref(), Some(on));
        assert_eq!(text(&points[1..2]), None);
    }
}
