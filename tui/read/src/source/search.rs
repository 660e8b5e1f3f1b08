//! Searches for processes in a thread of its own, for screens: a search among thousands of
//! processes takes longer than the answer to a key may take.

use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use anyhow::{Result, anyhow};

use super::{Discovery, discover};

/// Runs searches in the background, one after the other.
#[derive(Debug, Default)]
pub struct Search {
    under_way: Option<Receiver<Result<Discovery>>>,
    done: Option<Result<Discovery>>,
    last: Discovery,
}

impl Search {
    /// Begins a search, unless one still runs or has a result that was not taken yet.
    pub fn begin(&mut self) {
        if self.is_under_way() || self.done.is_some() {
            return;
        }
        let (result, under_way) = channel();
        let search = move || drop(result.send(discover()));
        match thread::Builder::new().name("pfp-search".to_owned()).spawn(search) {
            Ok(_) => self.under_way = Some(under_way),
            Err(error) => self.done = Some(Err(no_thread(error))),
        }
    }

    /// Whether a search has begun and has no result yet.
    pub fn is_under_way(&mut self) -> bool {
        let Some(under_way) = &self.under_way else { return false };
        self.done = Some(match under_way.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Disconnected) => Err(anyhow!("the search for processes failed")),
        });
        self.under_way = None;
        false
    }

    /// The result of the last search that has ended. Never waits.
    ///
    /// # Errors
    ///
    /// If that search failed. Each failure is returned only once.
    pub fn found(&mut self) -> Result<Discovery> {
        if !self.is_under_way()
            && let Some(done) = self.done.take()
        {
            self.last = done?;
        }
        Ok(self.last.clone())
    }
}

fn no_thread(error: io::Error) -> anyhow::Error {
    anyhow!(error).context("no thread to search for processes")
}
