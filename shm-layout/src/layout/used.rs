//! How much of a segment is in use, as its own process counts it.
//!
//! The segment has these counts, too, for readers, and another process may have written any number
//! there. So the counts in private memory decide where the next thing goes.

use crate::layout::geometry::PAGE;
use crate::sync::{AtomicU64, Ordering};

/// How much is in use of each section.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Used {
    pub(super) points: Count,
    /// Bytes of the string space.
    pub(super) strings: Count,
    pub(super) lanes: Count,
    pub(super) blocks: Count,
    pub(super) switches: Count,
    /// The page that was backed last, as in the three fields below. Most often the next entry or
    /// text is in that page, too, and needs no system call.
    pub(super) entries: LastPage,
    pub(super) controls: LastPage,
    pub(super) reset_times: LastPage,
    pub(super) texts: LastPage,
}

/// One more than the number of the page that was backed last in a section.
#[repr(transparent)]
#[derive(Debug, Default)]
pub(super) struct LastPage(AtomicU64);

impl LastPage {
    /// Backs a range by `back`, unless it is inside the page that was backed last.
    pub(super) fn back<E>(
        &self,
        offset: usize,
        len: usize,
        back: impl FnOnce(usize, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        if len == 0 {
            return Ok(());
        }
        let last = (offset + len - 1) / PAGE + 1;
        let is_in_it = offset / PAGE + 1 == last && self.0.load(Ordering::Relaxed) == last as u64;
        if !is_in_it {
            back(offset, len)?;
            self.0.store(last as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// How much is in use of one section.
#[repr(transparent)]
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// How much is in use.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Replaces the count by the result of `next`, and publishes the result for readers in `shown`.
    /// Returns the count before. `None` if `next` finds no room.
    pub(super) fn take(&self, shown: &AtomicU64, next: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, &next).ok()?;
        // The count only grows, so the greatest is the newest.
        shown.fetch_max(next(before)?, Ordering::Relaxed);
        Some(before)
    }

    /// Raises the count to `to`, whose memory is backed. Pairs with the readers' loads of
    /// `lanes_used`.
    pub(super) fn raise(&self, shown: &AtomicU64, to: u64) {
        self.0.fetch_max(to, Ordering::Relaxed);
        shown.fetch_max(to, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty text at the start of a page needs no memory, but the next text there does.
    #[test]
    fn a_page_that_was_refused_is_asked_for_again() {
        let page = LastPage::default();
        let full = |_, _| Err(());
        assert_eq!(page.back(PAGE, 8, full), Err(()));
        assert_eq!(page.back(PAGE, 0, full), Ok(()));
        assert_eq!(page.back(PAGE, 8, full), Err(()));
        assert_eq!(page.back(PAGE, 8, |_, _| Ok::<_, ()>(())), Ok(()));
        assert_eq!(page.back(PAGE + 8, 8, full), Ok(()), "it was backed");
        assert_eq!(page.back(2 * PAGE - 4, 8, full), Err(()), "its second page was not");
    }
}
