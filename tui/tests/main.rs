//! Tests of the viewer's files and commands, in one binary: most of them wait for other programs.

mod cli;
mod export;
mod formats;
mod moments;
#[path = "../../tests/src/tools.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is a part of the tests of whole programs")]
mod tools;
