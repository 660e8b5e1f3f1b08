//! `pfp-top`, the viewer of pfp: the profile points of a running program,
//! live in a terminal.
//!
//! The flow of data through this crate:
//!
//! ```text
//! pfp_read -> pfp_model -> common -> screens -> app -> view -> event_loop
//!                            \-> export
//! ```
//!
//! | module | what it is | must not know |
//! |---|---|---|
//! | [`common`] | what the app shares with its screens: actions, keys, prompts, the model | which screens there are |
//! | [`screens`] | a type for each screen: its state, keys, clicks, rows and drawing | each other |
//! | [`app`] | executes actions, on the screen that is shown and elsewhere | how it is drawn |
//! | [`view`] | draws the frame around a screen | how state changes |
//! | [`event_loop`] | polls, reads keys and draws frames on a real terminal | what is shown |
//! | [`styles`] | colours, signs and charts for all screens | what is drawn |
//! | [`export`] | writes the figures as text and files | the screen |
//! | `agent` | sends the figures of its machine's processes to a remote viewer | the screen |
//! | [`serve`] | serves the figures over HTTP | the screen |
//! | `push` | sends the figures to a collector; with the feature `otlp` | the screen |

mod agent;
pub mod app;
pub mod cli;
pub mod common;
pub mod event_loop;
pub mod export;
pub mod interrupt;
mod modes;
#[cfg(feature = "otlp")]
pub mod push;
pub mod remote;
pub mod screens;
pub mod serve;
mod signals;
pub mod styles;
pub mod variables;
pub mod view;
