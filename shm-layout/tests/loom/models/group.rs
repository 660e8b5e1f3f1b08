//! Models of the barrier at which the members of a group wait for each other, in
//! `probe/timing/src/members/barrier.rs`.

use std::sync::Arc;

use loom::thread;

use super::{assert_ready, check, make_ready, memory};
use crate::barrier::{Head, Member, Place, Words};
use crate::sync::{AtomicU64, Ordering, watch};

/// The words of a group.
struct Group {
    head: Head,
    members: Vec<Member>,
}

impl Group {
    fn with_room_for(members: usize) -> Self {
        let members = (0..members).map(|_| Member::default()).collect();
        Self { head: Head::default(), members }
    }

    fn words(&self) -> Words<'_> {
        Words { head: &self.head, members: &self.members, private: true }
    }

    fn completed(&self) -> u32 {
        (0..).find(|round| !self.words().is_complete(round + 1)).unwrap_or_default()
    }

    /// The member arrives. Calls `if_complete` if all members have arrived.
    fn come(&self, place: Place, stamp: u64, if_complete: impl FnOnce(u32)) {
        let round = self.words().arrive(place, stamp).expect("it is a member");
        if self.words().is_complete(round) {
            if_complete(round);
        }
    }
}

/// A group with two members, which have not arrived yet.
fn group_of_two() -> (Arc<Group>, [Place; 2]) {
    let group = Group::with_room_for(2);
    let places = [0, 1].map(|index| group.words().enter(index, |_| ()));
    watch(&group.head, &["completed"]);
    (Arc::new(group), places)
}

/// Two members arrive at once: at least one of them sees the round complete. A member that
/// continues sees all stores that both made before their arrival, and the last arrival's time.
pub(super) fn group_two_come() {
    check(|| {
        let (group, places) = group_of_two();
        group.members.iter().for_each(|member| watch(member, &["arrived"]));
        let before = [memory(), memory()];
        let come = move |group: &Group, before: &[Arc<AtomicU64>; 2], own: usize| {
            make_ready(&before[own]);
            group.come(places[own], 10 + own as u64, |round| {
                before.iter().for_each(|before| assert_ready(before));
                assert_eq!(group.words().last_stamp(round), 11);
            });
        };
        let other = {
            let (group, before) = (Arc::clone(&group), before.clone());
            thread::spawn(move || come(&group, &before, 1))
        };
        come(&group, &before, 0);
        other.join().unwrap();
        assert!(group.words().is_complete(1), "both have come, and neither has noticed");
    });
}

/// Of three members, one sees that all have arrived, and another one continues. The member that
/// continues sees the stores that the third member made before its arrival, which is the third
/// member's last step.
pub(super) fn group_three_come() {
    check(|| {
        let group = Arc::new(Group::with_room_for(3));
        let places = [0, 1, 2].map(|index| group.words().enter(index, |_| ()));
        watch(&group.head, &["completed"]);
        watch(&group.members[2], &["arrived"]);
        let before = memory();
        let second = {
            let group = Arc::clone(&group);
            thread::spawn(move || group.come(places[1], 11, |_| ()))
        };
        let third = {
            let (group, before) = (Arc::clone(&group), Arc::clone(&before));
            thread::spawn(move || {
                make_ready(&before);
                group.members[2].arrived.store(1, Ordering::Release);
            })
        };
        group.come(places[0], 10, |_| assert_ready(&before));
        second.join().unwrap();
        third.join().unwrap();
    });
}

/// A member enters while another one is in its third round: on entering, it skips at most the round
/// that is just being completed.
pub(super) fn group_late_member() {
    check(|| {
        let group = Arc::new(Group::with_room_for(2));
        let place = group.words().enter(0, |_| ());
        watch(&group.head, &["completed"]);
        watch(&group.members[1], &["active", "arrived"]);
        let other = {
            let group = Arc::clone(&group);
            thread::spawn(move || (0..3).for_each(|round| group.come(place, round, |_| ())))
        };
        group.words().enter(1, |_| ());
        let arrived = group.members[1].arrived.load(Ordering::Relaxed);
        let ahead = group.completed().wrapping_sub(arrived);
        assert!(ahead <= 1, "{ahead} rounds passed it by");
        other.join().unwrap();
    });
}

/// One member arrives while the other one leaves: the round is complete without the member that
/// left.
pub(super) fn group_one_leaves() {
    check(|| {
        let (group, places) = group_of_two();
        watch(&group.members[0], &["arrived"]);
        watch(&group.members[1], &["active"]);
        let other = {
            let group = Arc::clone(&group);
            thread::spawn(move || group.words().leave(places[1]))
        };
        group.come(places[0], 10, |_| ());
        other.join().unwrap();
        assert!(group.words().is_complete(1), "nobody is missing, and nobody has noticed");
    });
}

/// One member arrives, and is killed before it checks whether the round is complete. The other
/// member finds it dead and always continues, and counts it as missing only if it had not arrived.
pub(super) fn group_one_dies() {
    check(|| {
        let (group, places) = group_of_two();
        group.members.iter().for_each(|member| watch(member, &["arrived"]));
        let other = {
            let group = Arc::clone(&group);
            thread::spawn(move || group.members[1].arrived.store(1, Ordering::Release))
        };
        group.come(places[0], 10, |_| ());
        let words = group.words();
        if !words.is_complete(1) {
            let missing = words.remove_dead(0, 1, &|_| false);
            words.complete_round();
            assert!(missing <= 1 && words.is_complete(1));
        }
        other.join().unwrap();
    });
}

/// Two rounds: a round is complete only after both members have arrived in it, and its stamps can
/// be read while the next round runs.
pub(super) fn group_next_round() {
    check(|| {
        let (group, places) = group_of_two();
        watch(&group.members[1], &["arrived"]);
        fn is_right(group: &Group, round: u32, complete: u32) {
            assert_eq!(complete, round);
            for member in &group.members {
                assert!(member.arrived.load(Ordering::Relaxed) >= round);
            }
            assert_eq!(group.words().last_stamp(round), u64::from(round) * 10 + 1);
        }
        let come_twice = move |group: &Group, own: usize| {
            let mut goes_on = false;
            group.come(places[own], 10 + own as u64, |complete| {
                is_right(group, 1, complete);
                goes_on = true;
            });
            if goes_on {
                group.come(places[own], 20 + own as u64, |complete| is_right(group, 2, complete));
            }
        };
        let other = {
            let group = Arc::clone(&group);
            thread::spawn(move || come_twice(&group, 1))
        };
        come_twice(&group, 0);
        other.join().unwrap();
        let words = group.words();
        assert!(words.is_complete(1));
        let both = group.members.iter().all(|member| member.arrived.load(Ordering::Relaxed) == 2);
        assert_eq!(words.is_complete(2), both);
    });
}

/// A member enters while another one checks which members are missing and alive: the new member is
/// not judged by the previous owner of its index.
pub(super) fn group_one_enters() {
    const ALIVE: u32 = 7;
    check(|| {
        let group = Arc::new(Group::with_room_for(2));
        let first = group.words().enter(0, |_| ());
        watch(&group.members[1], &["active", "id"]);
        let other = {
            let group = Arc::clone(&group);
            thread::spawn(move || {
                group.words().enter(1, |member| member.id.store(ALIVE, Ordering::Relaxed))
            })
        };
        group.come(first, 10, |_| ());
        let is_alive =
            |index: u32| group.members[index as usize].id.load(Ordering::Relaxed) == ALIVE;
        assert_eq!(group.words().remove_dead(0, 1, &is_alive), 0);
        let second = other.join().unwrap();
        assert!(group.words().arrive(second, 11).is_some(), "it was taken for dead");
    });
}
