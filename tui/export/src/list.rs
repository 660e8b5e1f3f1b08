//! The processes that can be watched, as JSON.

use serde::Serialize;

use pfp_read::snapshot::End;
use pfp_read::source::Discovery;

#[derive(Serialize)]
struct ListedProcess<'a> {
    number: String,
    pid: u32,
    pid_here: u32,
    name: &'a str,
    exe: &'a str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<&'a End>,
    points: u32,
    segment_id: &'a str,
    started_unix_ns: u64,
}

/// All processes as JSON, with a line break at the end.
pub fn json(discovery: &Discovery) -> serde_json::Result<String> {
    let processes: Vec<_> = discovery
        .candidates
        .iter()
        .map(|c| ListedProcess {
            number: discovery.number_of(c),
            pid: c.pid,
            pid_here: c.visible_pid(),
            name: &c.name,
            exe: &c.exe,
            state: c.state_word(),
            end: c.end.as_ref(),
            points: c.points,
            segment_id: &c.segment_id,
            started_unix_ns: c.started_unix_ns,
        })
        .collect();
    Ok(serde_json::to_string_pretty(&processes)? + "\n")
}
