//! The measured functions that a thread is currently in.
//!
//! They form a stack of frames in pages of the thread. A forked child finds these pages zeroed. An
//! end belongs to a begin if the hooks were called from the same frame of the program's stack. The
//! stack pointer (sp) identifies that frame, since stacks grow downwards:
//!
//! ```text
//! main      | sp 900 |  sp when the hook at its start ran
//! parse     | sp 700 |
//! item      | sp 640 |  <-- left by longjmp
//! end of parse, sp 700: the frames below 700 are gone
//! ```
//!
//! | hook at a function's end | how it matches the hook at the start |
//! |---|---|
//! | called like the hook at the start | same sp |
//! | reached by a tail call | returns to the function's return address; its frame is below sp |
//! | called after the frame has grown (`alloca`) | smaller sp, same frame pointer |
//!
//! Functions inlined into one frame share its sp and its return address. A function left by
//! `longjmp`, or by an exception that no hook sees, is ended at the thread's next hook at or above
//! the function's stack position.
//!
//! These rules hold within one stack. The bounds of the thread's own stack and of its signal stack
//! are known. Frames on other stacks (of fibres) are never assumed to be left, and end only with a
//! hook that matches them exactly.

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

/// Maximum number of measured frames of a thread. It is less than the maximum number of open
/// regions, because a begin beyond that maximum discards all open regions.
const ROOM: usize = 4000;
/// Maximum number of frames that an end searches for its begin.
const FAR: usize = 64;
/// Maximum size of a frame on an unknown stack, in bytes.
const FRAME: usize = 1 << 20;

/// A measured function. Written by its thread, and by signal handlers that interrupt the thread.
#[repr(C)]
struct Frame {
    /// Tag of the region; 0 if it is not measured.
    tag: AtomicU64,
    /// Address of the function; 0 before the tag is stored, and after the end.
    function: AtomicUsize,
    site: AtomicUsize,
    /// Stack pointer; 0 if the function has ended but frames above this one stay open.
    sp: AtomicUsize,
    to: AtomicUsize,
    fp: AtomicUsize,
}

impl Frame {
    /// Ends the region, if it is measured.
    #[inline(always)]
    fn end(&self) {
        let tag = self.tag.load(Relaxed);
        if tag != 0 {
            probe::c::end_tag(tag);
        }
    }
}

/// A range of addresses.
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

/// A [`Range`] in the thread's pages.
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

/// The measured frames of a thread. All zeros is a valid value: no frames, and no stack is known.
#[repr(C)]
pub(super) struct Frames {
    depth: AtomicUsize,
    /// The thread's own stack.
    own: KeptRange,
    /// The stack of its signal handlers.
    signals: KeptRange,
    /// 1 once `own` has been determined.
    knows_own: AtomicUsize,
    /// Stack pointer at the last look-up of `signals`.
    asked: AtomicUsize,
    /// Number of frames up to and including the first frame off the thread's own stack; 0 if all
    /// frames are on it.
    foreign: AtomicUsize,
    frames: [Frame; 0],
}

const BYTES: usize = size_of::<Frames>() + ROOM * size_of::<Frame>();

/// Key whose destructor frees a thread's frames, plus 1; 0 before the key exists.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Creates the key before the engine creates its own, because destructors run in that order: open
/// functions must end before the engine's destructor releases the lane.
pub(super) fn prepare() {
    if KEY.load(Relaxed) != 0 {
        return;
    }
    let mut key = 0;
    // SAFETY: writes to `key`; the destructor accepts the pages that `Frames::get` sets.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(at_thread_exit)) } == 0
        && KEY.compare_exchange(0, key + 1, Relaxed, Relaxed).is_err()
    {
        // SAFETY: `key` was made above, and no other thread has seen it.
        unsafe { libc::pthread_key_delete(key) };
    }
}

unsafe extern "C" fn at_thread_exit(pages: *mut libc::c_void) {
    // SAFETY: `Frames::get` set the value to pages that stay mapped until the `munmap` below.
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
    /// The calling thread's frames, if it has any.
    #[inline(always)]
    pub(super) fn current() -> Option<&'static Self> {
        // SAFETY: null, or pages that stay mapped until the thread has ended.
        unsafe { top()?.frames.load(Relaxed).cast::<Self>().as_ref() }
    }

    /// The calling thread's frames, created by the first call. `None` if memory runs out.
    pub(super) fn get(sp: usize) -> Option<&'static Self> {
        let frames = match Self::current() {
            Some(frames) => frames,
            None => {
                let top = top()?;
                let pages = probe::c::private_pages(BYTES)?;
                top.frames.store(pages, Relaxed);
                look_further();
                if let Some(key) = KEY.load(Relaxed).checked_sub(1) {
                    // SAFETY: `KEY` holds an existing key plus 1, whose destructor expects such
                    // pages.
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
        // SAFETY: `at` is less than `ROOM`, for which the pages have space, and a zeroed frame is
        // valid.
        unsafe { &*frames.add(at) }
    }

    /// Starts to measure a function whose point is on.
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
        // The depth grows before the frame is filled, so that a signal handler uses the next frame.
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

    /// Ends the function whose end a hook reports, if it is measured.
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
        // A function that is off has ended inside the measured one.
        let own = self.own.get();
        if call.sp >= own.start && call.sp < sp && sp < own.end && function != call.function {
            return;
        }
        self.end_slow(call);
    }

    /// Ends the topmost frame and pops it.
    #[inline(always)]
    fn drop_top(&self, top: usize) {
        let frame = self.frame(top);
        // Marks the frame as ended first, so that it is not ended twice if a signal handler jumps
        // away.
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

    /// Sets the topmost frame as the one with which the end hook compares its call.
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

    /// Sets the frame with which the end hook compares its call. While any frame is on another
    /// stack than the thread's own, sp is set to 0, so that every end hook searches the frames.
    #[inline(always)]
    fn say(&self, function: usize, sp: usize) {
        set_top(function, if self.foreign.load(Relaxed) == 0 { sp } else { 0 });
    }

    /// Pops frames that the program has already left.
    #[inline(never)]
    fn tidy(&self, call: &Call) {
        self.drop_gone(call.sp);
        // A frame with the sp of this call belongs to a function that is inlined into the same
        // frame, or to a function that the program left before this call. The program has left it
        // if the frame's call site differs from this call's, or if the frame's start hook was
        // called from the same instruction as this hook.
        let mut keep = self.depth();
        for at in (0..self.depth()).rev() {
            let frame = self.frame(at);
            if frame.sp.load(Relaxed) != call.sp {
                break;
            }
            let gone = frame.site.load(Relaxed) != call.site || frame.to.load(Relaxed) == call.to;
            // A frame whose begin was interrupted by this signal handler has no function yet.
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

    /// Whether the program has left the frame at `place`, now that the stack pointer is `sp`.
    fn is_gone(&self, place: usize, sp: usize) -> bool {
        // If the thread runs on its own stack, signal handlers on the signal stack have ended.
        place == 0
            || place < sp && self.are_on_one(place, sp)
            || self.signals.get().has(place) && self.own.get().has(sp)
    }

    /// Whether both addresses are on the same known stack.
    fn are_on_one(&self, a: usize, b: usize) -> bool {
        let (own, signals) = (self.own.get(), self.signals.get());
        own.has(a) && own.has(b) || signals.has(a) && signals.has(b)
    }

    #[inline(never)]
    fn end_slow(&self, call: &Call) {
        let by_jump = call.to == call.site;
        // Ends the frames that the program has left. If a tail call reached this hook, the
        // function's own frame is one of them.
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
                    // The frames above are inlined functions whose ends no hook reported.
                    self.drop_to(at);
                } else {
                    self.take_out(at);
                }
                return;
            }
            // This frame and the remaining ones belong to callers of the function that ends.
            if sp > call.sp && self.are_on_one(sp, call.sp) && frame.fp.load(Relaxed) != call.fp {
                return;
            }
        }
    }

    /// Whether `frame`, which has the function and the call site of `call`, is the frame that ends.
    fn is_of(&self, frame: &Frame, call: &Call, by_jump: bool) -> bool {
        let sp = frame.sp.load(Relaxed);
        if by_jump {
            return sp < call.sp && call.sp - sp < FRAME;
        }
        if sp == call.sp {
            return true;
        }
        // A function whose frame has grown uses a frame pointer. The frame pointer is not below the
        // sp of the start hook, and the word above it in memory is the return address.
        let fp = call.fp;
        sp > call.sp
            && fp == frame.fp.load(Relaxed)
            && fp >= sp
            && fp - sp < FRAME
            && (!self.own.get().has(fp) || {
                // SAFETY: `fp` is on the thread's own stack, above its stack pointer, so the word
                // next to it is readable.
                let beside = unsafe { *(fp as *const usize).add(1) };
                beside == call.site
            })
    }

    /// Ends a frame, but leaves the frames above it open, since they are on other stacks.
    fn take_out(&self, at: usize) {
        let frame = self.frame(at);
        if frame.function.swap_here(0) != 0 {
            compiler_fence(SeqCst);
            frame.end();
        }
        frame.sp.store(0, Relaxed);
    }

    /// Looks up the signal stack if `sp` could be on it.
    #[cold]
    #[inline(never)]
    fn learn(&self, sp: usize) {
        // Fibres call this often. The look-up is skipped if sp is in the same 64 KiB as last time.
        if self.signals.get().has(sp) || self.asked.swap(sp, Relaxed) >> 16 == sp >> 16 {
            return;
        }
        let mut stack = MaybeUninit::<libc::stack_t>::uninit();
        // SAFETY: with a null first argument, the call only fills `stack`.
        if unsafe { libc::sigaltstack(ptr::null(), stack.as_mut_ptr()) } == 0 {
            // SAFETY: the successful call filled `stack`.
            let stack = unsafe { stack.assume_init() };
            let start = stack.ss_sp as usize;
            self.signals.set(Range { start, end: start.saturating_add(stack.ss_size) });
        }
    }
}

/// Sets the frame with which the end hook compares its call. A signal handler between the two
/// stores either restores both or jumps away; after a jump, the hook searches the frames more often
/// than needed.
#[inline(always)]
fn set_top(function: usize, sp: usize) {
    if let Some(top) = top() {
        top.function.store(function, Relaxed);
        top.sp.store(sp, Relaxed);
    }
}

/// A value that only one thread and its signal handlers change.
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
