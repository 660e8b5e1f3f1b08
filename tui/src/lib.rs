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

pub mod app;
pub mod cli;
pub mod common;
pub mod event_loop;
pub mod interrupt;
mod modes;
pub mod screens;
mod signals;
pub mod styles;
pub mod variables;
pub mod view;
