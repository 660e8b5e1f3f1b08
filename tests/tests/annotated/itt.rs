//! ITT: OpenCV, and Python's package.

use pfp_tests::tools;

use crate::{alone, file, run, text};

#[test]
fn opencv_tells_each_call_of_its_functions() {
    const ROUNDS: u64 = 5;
    let Some(python) = tools::annotated("OpenCV") else { return };
    let script = file("pictures.py");
    let arguments = [text(&script), &ROUNDS.to_string()];
    let ran = run(&[], &python, &arguments);
    assert_eq!(ran.printed.lines().next(), alone(&python, &arguments).lines().next());
    for function in ["cvtColor", "GaussianBlur", "Canny", "resize"] {
        let point = ran.snapshot.points.iter().find(|point| {
            point.file.starts_with("itt:") && point.name.contains(&format!("cv::{function}("))
        });
        let point = point.unwrap_or_else(|| panic!("no {function}"));
        assert_eq!(ran.count(&point.file, &point.name), ROUNDS, "{function}");
    }
    ran.lost_nothing();
}

#[test]
fn what_a_script_annotates_is_counted_to_one() {
    const ROUNDS: u64 = 50;
    let Some(python) = tools::annotated("a script with ITT") else { return };
    let script = file("tasks.py");
    let arguments = [text(&script), &ROUNDS.to_string()];
    let ran = run(&["--inject", "itt"], &python, &arguments);
    assert_eq!(ran.printed, alone(&python, &arguments));
    for (domain, name, each) in [
        ("itt:tasks.app", "outer", 1),
        ("itt:tasks.app", "inner", 1),
        ("itt:tasks.app", "overlapped", 2),
        ("itt", "event", 1),
    ] {
        assert_eq!(ran.count(domain, name), each * ROUNDS, "{name} in {domain}");
    }
    let is_wall = |name: &str| ran.snapshot.points.iter().any(|it| it.name == name && it.wall);
    assert!(is_wall("overlapped") && is_wall("event") && !is_wall("outer"));
    ran.lost_nothing();
}
