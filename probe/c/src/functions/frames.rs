//! The functions of a thread that are measured just now.
//!
//! A stack of guards in pages of the thread's own, which a forked child finds
//! empty. An end belongs to a begin if both were called from one frame of the
//! program's stack, which the stack pointer tells, as stacks grow downwards:
//!
//! ```text
//! main      | sp 900 |  the hook at its beginning was called with this sp
//! parse     | sp 700 |
//! item      | sp 640 |  <-- left by longjmp
//! end of parse, sp 700: what is below 700 has no frame any more
//! ```
//!
//! | an end that is called | has |
//! |---|---|
//! | as its begin was | the same sp |
//! | by a jump, the last thing in its frame | the return address of the function, and all of the frame below it |
//! | after the frame has grown (`alloca`) | a smaller sp, and the same frame pointer |
//!
//! Parts of one frame, as inlined functions are, share its sp and the place that
//! it returns to. What was left by `longjmp`, or by an exception that no hook
//! sees, is ended when the thread next comes by a hook at or above its place.
//!
//! That holds on one stack. Of the thread's own and the one for its signal
//! handlers the bounds are known. Frames on any other (of fibres) are never taken
//! for left, and ended only by an end that fits them exactly.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use probe::Point;

use super::top::{look_further, top};
use super::{Call, bounds};

/// Frames that can be measured at a time, by thread: fewer than the regions that can be open, which
/// would all be given up for one more.
const ROOM: usize = 4000;
/// Frames that an end goes past in search of its begin.
const FAR: usize = 64;
/// No frame is larger than this, on a stack that is not known.
const FRAME: usize = 1 << 20;

/// A function that is measured. Written by its thread, and by signal handlers on
/// that thread in between.
#[repr(C)]
struct Frame {
    /// Of the region; 0 if it is not measured.
    tag: AtomicU64,
    /// 0 before the tag is stored, and after the end.
    function: AtomicUsize,
    site: AtomicUsize,
    /// 0 if it was taken out from among others.
    sp: AtomicUsize,
    to: AtomicUsize,
    fp: AtomicUsize,
}

impl Frame {
    /// Ends the region.
    #[inline(always)]
    fn end(&self) {
        let tag = self.tag.load(Relaxed);
        if tag != 0 {
            probe::c::end_tag(tag);
        }
    }
}

/// Addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Range {
    pub(super) const EMPTY: Self = Self { start: 0, end: 0 };

    fn has(self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// A [`Range`] in the pages.
#[repr(C)]
struct KeptRange {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl KeptRange {
    fn set(&self, range: Range) {
        self.start.store(range.start, Relaxed);
        self.end.store(range.end, Relaxed);
    }

    fn get(&self) -> Range {
        Range { start: self.start.load(Relaxed), end: self.end.load(Relaxed) }
    }
}

/// The frames of a thread. Zeros are a valid value, with nothing known.
#[repr(C)]
pub(super) struct Frames {
    depth: AtomicUsize,
    /// The thread's own stack.
    own: KeptRange,
    /// The stack of its signal handlers.
    signals: KeptRange,
    /// Whether `own` is known: 0 or 1.
    knows_own: AtomicUsize,
    /// The stack pointer when the other was asked for.
    asked: AtomicUsize,
    /// How many frames there are up to the first that is not on the thread's own
    /// stack, that one among them; 0 if all are.
    foreign: AtomicUsize,
    frames: [Frame; 0],
}

const BYTES: usize = size_of::<Frames>() + ROOM * size_of::<Frame>();

/// One more than the key whose destructor frees a thread's frames; 0 before there
/// is one.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Makes the key. Before the engine's, whose destructor gives the lane back: what
/// is still open when a thread ends is ended before that.
pub(super) fn prepare() {
    if KEY.load(Relaxed) != 0 {
        return;
    }
    let mut key = 0;
    // SAFETY: makes a key with a destructor of the right type.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(at_thread_exit)) } == 0
        && KEY.compare_exchange(0, key + 1, Relaxed, Relaxed).is_err()
    {
        // SAFETY: `key` was made above, and no other thread has seen it.
        unsafe { libc::pthread_key_delete(key) };
    }
}

unsafe extern "C" fn at_thread_exit(pages: *mut libc::c_void) {
    // SAFETY: what `Frames::get` has set.
    let frames = unsafe { &*pages.cast::<Frames>() };
    while let Some(top) = frames.depth().checked_sub(1) {
        frames.drop_top(top);
    }
    if let Some(top) = top() {
        top.frames.store(ptr::null_mut(), Relaxed);
    }
    // SAFETY: the mapping has `BYTES` bytes, and the thread's pointer to it is null now.
    unsafe { libc::munmap(pages, BYTES) };
}

impl Frames {
    /// The calling thread's, if there are any.
    #[inline(always)]
    pub(super) fn current() -> Option<&'static Self> {
        // SAFETY: null, or pages that stay mapped until the thread has ended.
        unsafe { top()?.frames.load(Relaxed).cast::<Self>().as_ref() }
    }

    /// The calling thread's frames, which the first call makes. `None` without memory.
    pub(super) fn get(sp: usize) -> Option<&'static Self> {
        let frames = match Self::current() {
            Some(frames) => frames,
            None => {
                let top = top()?;
                let pages = probe::c::private_pages(BYTES)?;
                top.frames.store(pages, Relaxed);
                look_further();
                if let Some(key) = KEY.load(Relaxed).checked_sub(1) {
                    // SAFETY: the key was made, and the value is what its destructor
                    // expects.
                    unsafe { libc::pthread_setspecific(key, pages.cast()) };
                }
                Self::current()?
            }
        };
        if frames.knows_own.load(Relaxed) == 0 {
            frames.own.set(bounds::own(sp));
            frames.knows_own.store(1, Relaxed);
        }
        Some(frames)
    }

    fn depth(&self) -> usize {
        self.depth.load(Relaxed)
    }

    #[inline(always)]
    fn frame(&self, at: usize) -> &Frame {
        debug_assert!(at < ROOM);
        let frames = (&raw const self.frames).cast::<Frame>();
        // SAFETY: callers stay below the depth, or at most at `ROOM - 1`; the pages
        // have that much room, and zeros are a valid frame.
        unsafe { &*frames.add(at) }
    }

    /// Begins to measure a function whose point is on.
    #[inline(always)]
    pub(super) fn begin(&self, call: &Call, point: &'static Point, word: u64) {
        let own = self.own.get().has(call.sp);
        if !own {
            self.learn(call.sp);
        }
        if let Some(top) = self.depth().checked_sub(1)
            && self.frame(top).sp.load(Relaxed) <= call.sp
        {
            self.tidy(call);
        }
        let depth = self.depth();
        if depth >= ROOM {
            return probe::c::count_refusal();
        }
        let frame = self.frame(depth);
        // Reserved first, so that a signal handler takes the next one.
        frame.function.store(0, Relaxed);
        frame.sp.store(call.sp, Relaxed);
        compiler_fence(SeqCst);
        self.depth.store(depth + 1, Relaxed);
        compiler_fence(SeqCst);
        if !own && self.foreign.load(Relaxed) == 0 {
            self.foreign.store(depth + 1, Relaxed);
        }
        self.say(call.function, call.sp);
        frame.site.store(call.site, Relaxed);
        frame.to.store(call.to, Relaxed);
        frame.fp.store(call.fp, Relaxed);
        frame.tag.store(probe::c::begin_function(point, word), Relaxed);
        compiler_fence(SeqCst);
        frame.function.store(call.function, Relaxed);
    }

    /// Ends the function that a hook says to be at its end, if it is measured.
    #[inline(always)]
    pub(super) fn end(&self, call: &Call) {
        let Some(top) = self.depth().checked_sub(1) else { return };
        let frame = self.frame(top);
        let sp = frame.sp.load(Relaxed);
        let function = frame.function.load(Relaxed);
        if sp == call.sp
            && function == call.function
            && frame.site.load(Relaxed) == call.site
            && call.to != call.site
        {
            return self.drop_top(top);
        }
        // A function that is off, in one that is measured.
        let own = self.own.get();
        if call.sp >= own.start && call.sp < sp && sp < own.end && function != call.function {
            return;
        }
        self.end_slow(call);
    }

    /// Ends the topmost frame and takes it off.
    #[inline(always)]
    fn drop_top(&self, top: usize) {
        let frame = self.frame(top);
        // Closed first, so that it is not ended again if a signal handler jumps away.
        if frame.function.swap_here(0) != 0 {
            compiler_fence(SeqCst);
            frame.end();
            compiler_fence(SeqCst);
        }
        self.depth.store(top, Relaxed);
        compiler_fence(SeqCst);
        if self.foreign.load(Relaxed) > top {
            self.foreign.store(0, Relaxed);
        }
        self.say_top();
    }

    /// Says which ends need a look at the frames.
    #[inline(always)]
    fn say_top(&self) {
        match self.depth().checked_sub(1) {
            Some(at) => {
                let frame = self.frame(at);
                self.say(frame.function.load(Relaxed), frame.sp.load(Relaxed));
            }
            None => set_top(0, usize::MAX),
        }
    }

    /// Where stacks take turns, each end does.
    #[inline(always)]
    fn say(&self, function: usize, sp: usize) {
        set_top(function, if self.foreign.load(Relaxed) == 0 { sp } else { 0 });
    }

    /// Takes off what is left of frames that are gone.
    #[inline(never)]
    fn tidy(&self, call: &Call) {
        self.drop_gone(call.sp);
        // At one place of the stack: parts of one frame, or frames of which only the
        // last is there. Then what called them differs, or the same hook of the
        // same frame comes anew.
        let mut keep = self.depth();
        for at in (0..self.depth()).rev() {
            let frame = self.frame(at);
            if frame.sp.load(Relaxed) != call.sp {
                break;
            }
            let gone = frame.site.load(Relaxed) != call.site || frame.to.load(Relaxed) == call.to;
            // One that a signal handler has interrupted says nothing of itself yet.
            if gone && frame.function.load(Relaxed) != 0 {
                keep = at;
            }
        }
        self.drop_to(keep);
    }

    fn drop_to(&self, keep: usize) {
        while let Some(top) = self.depth().checked_sub(1)
            && top >= keep
        {
            self.drop_top(top);
        }
    }

    fn drop_gone(&self, sp: usize) {
        while let Some(top) = self.depth().checked_sub(1)
            && self.is_gone(self.frame(top).sp.load(Relaxed), sp)
        {
            self.drop_top(top);
        }
    }

    /// Whether a frame at a place is gone, now that the stack pointer is `sp`.
    fn is_gone(&self, place: usize, sp: usize) -> bool {
        // A signal handler on a stack of its own has ended if what it interrupted
        // goes on.
        place == 0
            || place < sp && self.are_on_one(place, sp)
            || self.signals.get().has(place) && self.own.get().has(sp)
    }

    /// Whether both are on one stack that is known.
    fn are_on_one(&self, a: usize, b: usize) -> bool {
        let (own, signals) = (self.own.get(), self.signals.get());
        own.has(a) && own.has(b) || signals.has(a) && signals.has(b)
    }

    #[inline(never)]
    fn end_slow(&self, call: &Call) {
        let by_jump = call.to == call.site;
        // A frame that ends by a jump is gone itself.
        self.drop_gone(call.sp);
        let depth = self.depth();
        for at in (depth.saturating_sub(FAR)..depth).rev() {
            let frame = self.frame(at);
            let sp = frame.sp.load(Relaxed);
            if frame.function.load(Relaxed) == call.function
                && frame.site.load(Relaxed) == call.site
                && self.is_of(frame, call, by_jump)
            {
                let above = at + 1..depth;
                if above.clone().all(|at| self.are_on_one(self.frame(at).sp.load(Relaxed), sp)) {
                    // Parts of the frame whose end no hook has seen.
                    self.drop_to(at);
                } else {
                    self.take_out(at);
                }
                return;
            }
            // Frames further up are none of this one's.
            if sp > call.sp && self.are_on_one(sp, call.sp) && frame.fp.load(Relaxed) != call.fp {
                return;
            }
        }
    }

    /// Whether a frame of the same function, called from the same place, is the one
    /// that ends.
    fn is_of(&self, frame: &Frame, call: &Call, by_jump: bool) -> bool {
        let sp = frame.sp.load(Relaxed);
        if by_jump {
            return sp < call.sp && call.sp - sp < FRAME;
        }
        if sp == call.sp {
            return true;
        }
        // It has grown, and then has a frame pointer: above its sp, beside what it
        // returns to.
        let fp = call.fp;
        sp > call.sp
            && fp == frame.fp.load(Relaxed)
            && fp >= sp
            && fp - sp < FRAME
            && (!self.own.get().has(fp) || {
                // SAFETY: on the thread's stack, above its stack pointer.
                let beside = unsafe { *(fp as *const usize).add(1) };
                beside == call.site
            })
    }

    /// Ends a frame below others, which are on stacks of their own and go on.
    fn take_out(&self, at: usize) {
        let frame = self.frame(at);
        if frame.function.swap_here(0) != 0 {
            compiler_fence(SeqCst);
            frame.end();
        }
        frame.sp.store(0, Relaxed);
    }

    /// Asks where the stack for signal handlers is, if `sp` might be on it.
    #[cold]
    #[inline(never)]
    fn learn(&self, sp: usize) {
        // Fibres come by here often, and mostly at the same places.
        if self.signals.get().has(sp) || self.asked.swap(sp, Relaxed) >> 16 == sp >> 16 {
            return;
        }
        let mut stack = MaybeUninit::<libc::stack_t>::uninit();
        // SAFETY: fills the struct.
        if unsafe { libc::sigaltstack(ptr::null(), stack.as_mut_ptr()) } == 0 {
            // SAFETY: filled.
            let stack = unsafe { stack.assume_init() };
            let start = stack.ss_sp as usize;
            self.signals.set(Range { start, end: start.saturating_add(stack.ss_size) });
        }
    }
}

/// Sets which ends are compared with the frames. A signal handler between the two stores restores
/// both or jumps away; after a jump, more ends are compared than need be.
#[inline(always)]
fn set_top(function: usize, sp: usize) {
    if let Some(top) = top() {
        top.function.store(function, Relaxed);
        top.sp.store(sp, Relaxed);
    }
}

/// What only one thread changes, signal handlers of its own between.
trait Here {
    /// Exchanges the value without a locked instruction.
    fn swap_here(&self, value: usize) -> usize;
}

impl Here for AtomicUsize {
    #[inline(always)]
    fn swap_here(&self, value: usize) -> usize {
        let before = self.load(Relaxed);
        self.store(value, Relaxed);
        before
    }
}
