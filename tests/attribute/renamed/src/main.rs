//! The macros where the crate has another name.
#![deny(warnings)]

#[prof::function(crate = prof)]
fn plain() {}

#[prof::measure(crate = ::prof, "a name", items = n)]
fn with_amounts(n: u32) -> u32 {
    prof::scope!("scope", items = n);
    prof::function_scope!();
    n
}

#[prof::function(crate = prof)]
async fn later() {}

mod inside {
    pub(crate) use prof as exported;

    #[exported::function(crate = crate::inside::exported)]
    pub(crate) fn plain() {
        exported::laps!(crate = exported, "first");
        exported::lap!(crate = exported, "second");
        exported::lap!(crate = exported, "third", bytes = 3);
    }
}

fn main() {
    plain();
    inside::plain();
    drop(later());
    prof::laps!(crate = prof);
    prof::lap!(crate = prof, "lap", items = with_amounts(1));
}
