//! Tests of changes in a process at another place, which answers later.

use super::*;
use pfp_read::source::ChangeAnswer;

/// A process at another place. It answers while `answers` is set.
#[derive(Clone, Default)]
struct Far {
    process: Shared,
    line: Rc<RefCell<Line>>,
}

#[derive(Default)]
struct Line {
    answers: bool,
    refuses: bool,
    requested: Vec<Change>,
    answered: Vec<ChangeAnswer>,
}

impl Far {
    fn handle_requests(&self) {
        let mut line = self.line.borrow_mut();
        if !line.answers {
            return;
        }
        for change in std::mem::take(&mut line.requested) {
            let result = match line.refuses {
                true => Err(anyhow::anyhow!("the process has ended")),
                false => match self.process.0.borrow_mut().act(change) {
                    Ok(Acted::Made(found)) => Ok(found),
                    other => panic!("{other:?}"),
                },
            };
            line.answered.push(ChangeAnswer { change, result });
        }
    }
}

impl Source for Far {
    fn picture(&mut self) -> Result<Snapshot> {
        self.handle_requests();
        self.process.0.borrow_mut().poll()
    }

    fn act(&mut self, change: Change) -> Result<Acted> {
        self.line.borrow_mut().requested.push(change);
        Ok(Acted::Requested)
    }

    fn answers(&mut self) -> Vec<ChangeAnswer> {
        self.handle_requests();
        std::mem::take(&mut self.line.borrow_mut().answered)
    }
}

fn desk_afar() -> (Desk, Far) {
    let mut desk = desk();
    let far = Far { process: desk.process.clone(), ..Far::default() };
    let now = desk.now;
    desk.app.watch(Box::new(far.clone()), now);
    desk.wait(2);
    (desk, far)
}

fn log_of_3(desk: &Desk) -> Vec<String> {
    let texts = desk.common.log.entries().iter().map(|entry| entry.text.clone());
    texts.filter(|text| text.contains("io.crc")).collect()
}

#[test]
fn a_change_is_shown_at_once_and_logged_when_it_is_confirmed() {
    let (mut desk, far) = desk_afar();
    desk.common.selected = Some(3);
    desk.press("e");
    assert_eq!(desk.said(), Some("io.crc is off, not confirmed yet"));
    assert_eq!((desk.point(3).state(), far.process.state(3)), (PointState::Off, PointState::On));
    assert!(log_of_3(&desk).is_empty());
    // The next picture, which shows the change, is requested at once.
    assert_eq!(desk.next_poll(), Some(desk.now));
    far.line.borrow_mut().answers = true;
    desk.wait(1);
    assert_eq!(desk.said(), Some("io.crc is off"));
    assert_eq!((desk.point(3).state(), far.process.state(3)), (PointState::Off, PointState::Off));
    assert_eq!(log_of_3(&desk), ["io.crc switched off by this viewer"]);
    desk.press("U");
    desk.wait(1);
    assert_eq!(desk.said(), Some("undone: switched off io.crc"));
    assert_eq!(far.process.state(3), PointState::On);
}

#[test]
fn a_refused_change_is_reported_and_cannot_be_undone() {
    let (mut desk, far) = desk_afar();
    far.line.borrow_mut().refuses = true;
    for keys in ["e", "ry", "F", "a0.5\n"] {
        desk.common.selected = Some(3);
        far.line.borrow_mut().answers = false;
        desk.press(keys);
        assert!(desk.said().is_some_and(|said| said.ends_with(", not confirmed yet")), "{keys}");
        far.line.borrow_mut().answers = true;
        desk.wait(1);
        assert_eq!(desk.said(), Some("io.crc: the process has ended"), "{keys}");
        assert_eq!(desk.point(3).state(), PointState::On);
        desk.press("U");
        assert_eq!(desk.said(), Some("there is no change of yours to undo"), "{keys}");
    }
    assert!(log_of_3(&desk).iter().all(|text| text.contains("has ended")));
}

/// Another viewer has switched the point since the last poll, as the answer says.
#[test]
fn the_state_that_the_answer_names_is_put_back() {
    for found in [PointState::Off, PointState::On] {
        let (mut desk, far) = desk_afar();
        far.process.made().points[3].state = found;
        desk.common.selected = Some(3);
        desk.press("e");
        far.line.borrow_mut().answers = true;
        desk.wait(1);
        assert_eq!(far.process.state(3), PointState::Off);
        drop(desk);
        far.handle_requests();
        assert_eq!(far.process.state(3), found);
    }
}

/// The screen keeps a requested switch, although a picture from before it has the old state.
#[test]
fn a_picture_from_before_the_answer_does_not_take_the_change_back() {
    let (mut desk, far) = desk_afar();
    desk.common.selected = Some(3);
    desk.press("e");
    desk.wait(3);
    assert_eq!((desk.point(3).state(), far.process.state(3)), (PointState::Off, PointState::On));
    desk.press("e");
    far.line.borrow_mut().answers = true;
    desk.wait(1);
    assert_eq!(far.process.state(3), PointState::On, "off, and on again");
    assert_eq!(log_of_3(&desk).len(), 2);
}

#[test]
fn a_change_without_an_answer_is_not_undone_and_a_refused_undo_can_be_repeated() {
    let (mut desk, far) = desk_afar();
    desk.common.selected = Some(3);
    desk.press("e");
    desk.press("U");
    assert_eq!(
        desk.said(),
        Some("your last change is not confirmed yet: press U again once it is")
    );
    far.line.borrow_mut().answers = true;
    desk.wait(1);
    assert_eq!(far.process.state(3), PointState::Off);
    far.line.borrow_mut().refuses = true;
    desk.press("U");
    desk.wait(1);
    assert_eq!(desk.said(), Some("io.crc: the process has ended"));
    assert_eq!((desk.point(3).state(), far.process.state(3)), (PointState::Off, PointState::Off));
    far.line.borrow_mut().refuses = false;
    desk.press("U");
    desk.wait(1);
    assert_eq!(desk.said(), Some("undone: switched off io.crc"));
    assert_eq!(far.process.state(3), PointState::On);
}
