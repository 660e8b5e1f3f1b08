//! Replacements for the modules that are left out when measuring is compiled out.

/// Functions that do nothing. The return value, if any, follows the `=`.
macro_rules! nothing {
    ($(fn $name:ident($($given:tt)*) $(-> $returned:ty = $value:expr)?;)*) => {
        $(#[inline(always)]
        pub(crate) const fn $name($($given)*) $(-> $returned)? {
            $($value)?
        })*
    };
}

/// The functions of `pfp_shm_layout::heap` that are used when measuring is compiled out.
pub(crate) mod heap {
    use std::collections::TryReserveError;

    pub(crate) fn text(of: &str) -> Result<String, TryReserveError> {
        let mut text = String::new();
        text.try_reserve_exact(of.len())?;
        text.extend([of]);
        Ok(text)
    }

    pub(crate) fn collect<T>(
        items: impl ExactSizeIterator<Item = T>,
    ) -> Result<Vec<T>, TryReserveError> {
        let mut list = Vec::new();
        list.try_reserve_exact(items.len())?;
        list.extend(items);
        Ok(list)
    }
}

pub(crate) mod named {
    use pfp::Point;

    nothing! {
        fn point(_kind: &str, _name: &str) -> Option<&'static Point> = None;
    }
    #[cfg(feature = "cuda")]
    nothing! {
        fn device_point(_kind: &str, _name: &str) -> Option<&'static Point> = None;
    }
}

pub(crate) mod members {
    use std::io;
    use std::time::Duration;

    use crate::Synced;

    #[derive(Clone, Debug)]
    pub(crate) struct Threads;

    impl Threads {
        nothing! {
            fn named(_name: &str, _members: u32) -> Self = Self;
            fn set_join_timeout(&self, _timeout: Duration);
            fn join(&self) -> bool = true;
            fn leave(&self);
            fn key(&self) -> u64 = 0;
        }

        pub(crate) fn wait(&self) -> (u32, Synced) {
            Default::default()
        }
    }

    #[derive(Debug)]
    pub(crate) struct Processes;

    impl Processes {
        nothing! {
            fn join(_name: &str, _members: u32) -> io::Result<Self> = Ok(Self);
            fn set_join_timeout(&mut self, _timeout: Duration);
        }

        pub(crate) fn wait(&self, _threads: Option<(u64, u32)>) -> Synced {
            Synced::default()
        }
    }
}

#[cfg(feature = "cuda")]
pub(crate) mod driver {
    use std::path::Path;

    use super::heap;
    use crate::{NoGpu, Stream};

    type Result<T> = std::result::Result<T, NoGpu>;

    /// Uninhabited, because a driver cannot be loaded.
    #[derive(Debug)]
    pub(crate) enum Driver {}

    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Event {}

    pub(crate) fn find() -> Result<&'static Driver> {
        Err(NoGpu::NoDriver(heap::text("measuring was compiled out").unwrap_or_default()))
    }

    pub(crate) fn load(_library: &Path) -> Result<&'static Driver> {
        find()
    }

    impl Driver {
        nothing! {
            fn devices(&self) -> u32 = match *self {};
            fn create(&self) -> Result<Event> = match *self {};
            fn destroy(&self, _event: Event) -> () = match *self {};
            fn is_done(&self, _event: Event) -> Result<bool> = match *self {};
            fn wait(&self, _event: Event) -> Result<()> = match *self {};
            fn between(&self, _start: Event, _end: Event) -> Result<f64> = match *self {};
        }

        /// # Safety
        ///
        /// Cannot be called, because a `Driver` does not exist.
        pub(crate) unsafe fn record(&self, _event: Event, _stream: Stream) -> Result<()> {
            match *self {}
        }
    }
}
