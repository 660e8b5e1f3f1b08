//! Runs tests in separate processes, because subscriber and options apply to a whole process.

#![allow(dead_code, reason = "each test uses a part")]

use std::process::Command;

use pfp_tracing::{InitError, Options};
use tracing_subscriber::layer::SubscriberExt;

/// Environment variable with the case that a process runs.
const CASE: &str = "PFP_TRACING_TEST_CASE";

/// The two ways to install pfp.
pub(crate) const WAYS: [&str; 2] = ["init()", "layer()"];

/// Runs a test once for each case, in a separate process whose command `prepare` may change.
/// Returns the case in such a process, and `None` once all cases have succeeded.
#[expect(clippy::disallowed_methods, reason = "a test's own variable, asked for as it starts")]
pub(crate) fn case(test: &str, cases: &[&str], prepare: fn(&str, &mut Command)) -> Option<String> {
    if let Ok(case) = std::env::var(CASE) {
        return Some(case);
    }
    for case in cases {
        let mut command = Command::new(std::env::current_exe().expect("the test is a file"));
        command.args([test, "--exact", "--nocapture"]).env(CASE, case);
        prepare(case, &mut command);
        let status = command.status().expect("the test starts again");
        assert!(status.success(), "{test} fails with {case}: {status}");
    }
    None
}

/// [`case`] for each way to install pfp.
pub(crate) fn way(test: &str) -> Option<String> {
    case(test, &WAYS, |_, _| ())
}

/// Sets the process's subscriber.
pub(crate) fn set(way: &str, options: Options) -> Result<(), InitError> {
    match way {
        "init()" => options.init(),
        _ => {
            let all = tracing_subscriber::registry().with(options.layer()?);
            tracing::subscriber::set_global_default(all).map_err(|_| InitError::NotTheFirst)
        }
    }
}
