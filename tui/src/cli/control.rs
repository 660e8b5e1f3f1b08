//! Commands for scripts that switch, reset and average points.

use anyhow::{Result, bail};
use clap::Args;

use super::missing::missing;
use super::output::print;
use super::target::TargetArgs;
use pfp_model::filter::Filter;
use pfp_model::{Figures, Model};
use pfp_model::{alpha, slow};
use pfp_read::snapshot::{Limit, PointFlag, PointState, ProcessState};
use pfp_read::source::{Change, Refusal, change_each};
use pfp_read::text::warn;

/// Which points of which process.
#[derive(Args, Clone, Debug)]
pub struct PointsArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The points: the exact name of a point, or else a filter as on the screen: a part of the
    /// name, `io.*` (`*` is any text, `?` any character), `file:io.rs`, `load>5`. `#3` is the point
    /// with the number 3 and no name.
    #[arg(value_name = "NAME", required = true, value_parser = named)]
    names: Vec<Filter>,
}

/// Which points to switch, or a property of them.
#[derive(Args, Clone, Debug)]
pub struct SwitchArgs {
    #[command(flatten)]
    points: PointsArgs,
    /// Switch only the count of what the points' regions allocate. It needs an allocator that
    /// counts: `run --alloc`, or pfp::Alloc.
    #[arg(long)]
    alloc: bool,
}

/// Which points to watch, and the limit of their calls.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct WatchArgs {
    #[command(flatten)]
    points: PointsArgs,
    /// Keep calls that take at least this long, by the clock: 1us to 99s, with two digits.
    #[arg(long, value_name = "TIME", value_parser = over, conflicts_with_all = ["over_cpu", "off"])]
    over: Option<Limit>,
    /// Keep calls that take at least this long on a CPU, nested calls included.
    #[arg(long, value_name = "TIME", value_parser = over_cpu, conflicts_with = "off")]
    over_cpu: Option<Limit>,
    /// Remove the limit.
    #[arg(long, required_unless_present_any = ["over", "over_cpu"])]
    off: bool,
}

fn over(text: &str) -> Result<Limit, String> {
    slow::parse_limit(text)?.filter(|limit| !limit.cpu).ok_or("expected a time such as 5ms".into())
}

fn over_cpu(text: &str) -> Result<Limit, String> {
    over(text).map(|limit| Limit { cpu: true, ..limit })
}

/// Sets or removes the limits of points.
pub(super) fn watch(watch: &WatchArgs) -> Result<u8> {
    run(&watch.points, PointCommand::Watch(watch.over.or(watch.over_cpu)))
}

/// The change to make to the selected points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PointCommand {
    /// Switch the points on.
    Enable,
    /// Switch the points off.
    Disable,
    /// Switch the count of allocations on or off.
    CountAllocs(bool),
    /// Set the time from which on calls of the points are kept, or remove it.
    Watch(Option<Limit>),
    /// Reset the figures of the points.
    Reset,
    /// Set alpha, the weight of a new value in the EWMA. `None` switches the EWMA off.
    Average(Option<f64>),
}

/// Parses alpha as the screen does.
pub(super) fn alpha(text: &str) -> Result<PointCommand, String> {
    alpha::parse(text).map(PointCommand::Average)
}

/// Switches the points, or their count of allocations, on or off.
pub(super) fn switch(switch: &SwitchArgs, on: bool) -> Result<u8> {
    let command = match (switch.alloc, on) {
        (true, on) => PointCommand::CountAllocs(on),
        (false, true) => PointCommand::Enable,
        (false, false) => PointCommand::Disable,
    };
    run(&switch.points, command)
}

/// Applies the command to all points whose names match, and prints how many changed.
pub(super) fn run(points: &PointsArgs, command: PointCommand) -> Result<u8> {
    let mut source = points.target.resolve()?;
    let snapshot = source.poll()?;
    let process = &snapshot.process;
    if process.state != ProcessState::Running {
        bail!(Refusal::NoTarget(format!(
            "expected a process that runs, but {process} has ended; nothing can be changed in it"
        )));
    }
    let model = Model::of(snapshot);
    let all = model.points().len();
    let fits = |figures: &&Figures| {
        points.names.iter().any(|named| {
            let is_named = |figures: &Figures| figures.name() == named.text();
            match model.points().iter().any(is_named) {
                true => is_named(figures),
                false => named.admits(figures),
            }
        })
    };
    let fitting: Vec<&Figures> = model.points().iter().filter(fits).collect();
    if fitting.is_empty() {
        bail!(Refusal::NoTarget(format!(
            "none of {all} points has such a name; `pfp-top --once --columns name` lists them, and \
             quotes keep the shell from reading the `*`"
        )));
    }
    let differs = |figures: &&&Figures| match command {
        PointCommand::Enable => figures.state() != PointState::On,
        // An invalid point does not measure, but is not off either.
        PointCommand::Disable => figures.state() != PointState::Off,
        PointCommand::CountAllocs(on) => figures.point().counts_allocs != on,
        PointCommand::Watch(_) | PointCommand::Reset | PointCommand::Average(_) => true,
    };
    let changing: Vec<u32> = fitting.iter().filter(differs).map(|figures| figures.id()).collect();
    let is_done = change_each(&changing, |id| {
        let change = match command {
            PointCommand::Enable => Change::Enable(*id),
            PointCommand::Disable => Change::Disable(*id),
            PointCommand::CountAllocs(on) => Change::SetFlag(*id, PointFlag::CountsAllocs, on),
            PointCommand::Watch(limit) => Change::SetLimit(*id, limit),
            PointCommand::Reset => Change::Reset(*id),
            PointCommand::Average(weight) => Change::SetAlpha(*id, weight),
        };
        source.act(change).map(drop)
    });
    if let Err(error) = &is_done
        && !Refusal::is_partly(error)
    {
        return is_done.map(|()| 0);
    }
    let changed = changing.len();
    let (done, rest, how) = match command {
        PointCommand::Enable => ("enabled", "on", String::new()),
        PointCommand::Disable => ("disabled", "off", String::new()),
        PointCommand::CountAllocs(true) => ("count allocations of", "counted", String::new()),
        PointCommand::CountAllocs(false) => {
            ("no longer count allocations of", "not counted", String::new())
        }
        PointCommand::Watch(Some(limit)) => {
            ("watch", "", format!(": calls of at least {limit} are kept"))
        }
        PointCommand::Watch(None) => ("no longer watch", "", String::new()),
        PointCommand::Reset => ("reset", "", String::new()),
        PointCommand::Average(weight) => {
            let weight = weight.map_or("off".into(), alpha::written);
            ("set alpha of", "", format!(" to {weight}"))
        }
    };
    let already = match fitting.len() - changed {
        0 => String::new(),
        n => format!(", {n} {} {rest} already", if n == 1 { "was" } else { "were" }),
    };
    print(&format!("{done} {changed} of {all} points{how}{already}\n"))?;
    if command == PointCommand::CountAllocs(true)
        && model.points().iter().all(|figures| figures.allocs().is_none())
    {
        warn(
            "no point has counted an allocation so far; the program needs an allocator that \
             counts: start it by `pfp-top run --alloc`, or use pfp::Alloc (docs/allocs.md)",
        );
    }
    is_done.map(|()| missing(source.as_ref()))
}

fn named(text: &str) -> Result<Filter, String> {
    match Filter::new(text)? {
        filter if filter.is_on() => Ok(filter),
        _ => Err("expected a name or a pattern such as 'io.*', found nothing".into()),
    }
}
