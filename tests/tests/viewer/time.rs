//! Time in a real terminal: each key of the timeline, and the load of a point zoomed in, zoomed out
//! and back in time.

use pfp_tests::needs_a_screen;
use pfp_tests::place::Place;
use pfp_tests::screen::{Screen, row};

const STEADY: &str = env!("CARGO_BIN_EXE_steady");

fn on_tab(text: &str, tab: &str) -> bool {
    text.contains(&format!("[{tab}]"))
}

/// The line about the region under the cursor, once the screen is completely drawn.
fn about(text: &str) -> Option<&str> {
    let is_whole = text.lines().last().is_some_and(|line| line.contains("Esc back"));
    text.lines().find(|line| line.contains(" long, ")).filter(|_| is_whole)
}

/// The number of the thread under the cursor, counted from the top.
fn cursor(text: &str) -> Option<usize> {
    text.lines().position(|line| line.starts_with('>'))
}

/// Nanoseconds since the region under the cursor began.
fn ago(text: &str) -> Option<u64> {
    let began = about(text)?.split("began ").nth(1)?.split(" ago").next()?;
    let digits = began.find(|c: char| c.is_ascii_alphabetic())?;
    let unit = match &began[digits..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    Some((began[..digits].parse::<f64>().ok()? * unit) as u64)
}

/// Presses a key, and waits until the cursor is on another region that fits.
#[track_caller]
fn to_region(screen: &Screen, key: &str, before: &str, fits: impl Fn(&str) -> bool) -> String {
    screen.press(&[key], key, |text| {
        about(text).is_some() && about(text) != about(before) && fits(text)
    })
}

#[test]
fn every_key_of_the_timeline_leads_where_it_says() {
    needs_a_screen!();
    let place = Place::new();
    let _target = place.start(STEADY, &[]);
    let screen = place.screen(130, 34);
    screen.pfp_top("-i 0.1");
    // Enough rounds to step through.
    screen.wait_for_count("tick", 20);
    screen
        .press(&["4"], "the timeline", |text| on_tab(text, "4 Timeline") && about(text).is_some());

    // Moves from line to line, paused, so that nothing else changes.
    let at = |line: usize| {
        screen.wait_for("the cursor to move", |text| cursor(text) == Some(line));
    };
    screen.keys(&["Space"]);
    screen.wait_for_status("PAUSED");
    screen.keys(&["Up", "Up", "Up", "Up", "Up", "Up"]);
    at(2);
    screen.keys(&["Down"]);
    at(3);
    screen.keys(&["j"]);
    at(4);
    screen.keys(&["k"]);
    at(3);
    screen.keys(&["Up"]);
    at(2);
    let by_name = |text: &str, name: &str| {
        text.lines().position(|l| l.trim_start_matches(['>', ' ']).starts_with(name))
    };
    let text = screen.shown();
    let ticker = by_name(&text, "ticker").expect("a line of the ticker");
    for _ in 2..ticker {
        screen.keys(&["Down"]);
    }
    at(ticker);

    // Moves from region to region.
    let newest = screen.wait_for("a region", |text| ago(text).is_some());
    let one = to_region(&screen, "Left", &newest, |text| text.contains("paused: End resumes"));
    let two = to_region(&screen, "h", &one, |text| ago(text) > ago(&one));
    assert!(ago(&one) > ago(&newest), "{one}\n{newest}");
    let right = to_region(&screen, "Right", &two, |text| about(text) == about(&one));
    let left = to_region(&screen, "Left", &right, |text| about(text) == about(&two));
    to_region(&screen, "l", &left, |text| about(text) == about(&one));

    // Jumps to the oldest region and back to now, by both keys for each.
    let oldest = to_region(&screen, "Home", &one, |text| ago(text) > ago(&two));
    screen.press(&["Left"], "no older one", |text| about(text) == about(&oldest));
    let follows = |text: &str| !text.contains("paused") && about(text) == about(&newest);
    to_region(&screen, "End", &oldest, follows);
    screen.text("g");
    to_region(&screen, "g", &newest, |text| about(text) == about(&oldest));
    to_region(&screen, "G", &oldest, follows);

    // Pages half a screen back and forth, at a width of 50 ms, so that older data exists.
    let wide = |text: &str, width: &str| text.contains(&format!("{width} wide"));
    for _ in 0..16 {
        let text = screen.shown();
        if wide(&text, "50.0ms") {
            break;
        }
        let before = text.split(" wide").next().unwrap_or("").rsplit(' ').next().unwrap_or("");
        let before = format!(" {before} wide");
        screen.press(&["+"], "a closer look", |text| {
            text.contains(" wide") && !text.contains(&before)
        });
    }
    assert!(wide(&screen.shown(), "50.0ms"), "{}", screen.shown());
    let now =
        |text: &str| text.lines().nth(1).is_some_and(|axis| axis.trim_end().ends_with("now|"));
    screen.wait_for("now at the right", now);
    screen.press(&["PPage"], "half a screen back", |text| {
        !now(text) && text.contains("paused: End resumes")
    });
    let back = screen.press(&["C-b"], "and another", |text| {
        text.lines().nth(1).is_some_and(|axis| !axis.contains("now") && axis.contains("-90ms"))
    });
    assert!(back.contains("paused"), "{back}");
    screen.press(&["NPage"], "half a screen on", |text| {
        !now(text) && text.lines().nth(1).is_some_and(|axis| !axis.contains("-90ms"))
    });
    screen.press(&["C-f"], "now again", |text| now(text) && !text.contains("paused"));
    screen.press(&["-"], "a wider look", |text| wide(text, "100ms"));
    screen.press(&["="], "a closer one", |text| wide(text, "50.0ms"));
    screen.quit();
}

#[test]
fn the_point_of_a_region_is_switched_and_reset_from_the_timeline() {
    needs_a_screen!();
    let place = Place::new();
    let _target = place.start(STEADY, &[]);
    let screen = place.screen(120, 30);
    screen.pfp_top("-i 0.1");
    screen.wait_for_status("LIVE");
    let shown = screen.press(&["4"], "a region", |text| about(text).is_some());
    assert!(shown.lines().last().unwrap_or_default().contains("e on/off"), "{shown}");
    let off = screen.press(&["e"], "a point that is off", |text| {
        text.contains(" is off") && text.contains(" (off now)") && text.contains("paused")
    });
    let name = off.lines().last().unwrap_or_default().split(" is off").next().unwrap_or_default();
    let name = name.trim().to_owned();
    let about = off.lines().find(|line| line.contains("(off now)")).unwrap_or_default();
    assert!(about.starts_with(&format!(" {name} (off now)")), "{off}");
    screen.press(&["e"], "the same point on again", |text| {
        text.contains(&format!(" {name} is on")) && !text.contains("(off now)")
    });
    screen.press(&["r", "y"], "afresh", |text| text.contains(&format!(" reset {name}")));
    screen.press(&["Enter"], &format!("the detail of {name}"), |text| {
        on_tab(text, "2 Detail") && text.contains(&format!(" {name}  id ")) && text.contains("  on")
    });
    screen.quit();
}

/// The title of the load plot.
fn title(text: &str) -> &str {
    text.lines().find(|line| line.starts_with(" Load, ")).unwrap_or_default()
}

/// The plot of the load and the time axis, once it is completely drawn.
fn picture(text: &str) -> Option<Vec<&str>> {
    let is_whole = text.lines().last().is_some_and(|line| line.contains("Esc back"));
    let lines = text.lines().skip_while(|line| !line.starts_with(" Load, "));
    let lines: Vec<_> = lines.skip(1).take(5).collect();
    (is_whole && lines.len() == 5).then_some(lines)
}

#[test]
fn the_load_of_a_point_can_be_zoomed_and_moved_in_time() {
    needs_a_screen!();
    let place = Place::new();
    let _target = place.start(STEADY, &[]);
    let screen = place.screen(120, 34);
    screen.pfp_top("-i 0.1");
    screen.wait_for("the busiest first", |text| row(text, "work").is_some());
    let live = screen.press(&["2"], "the load", |text| {
        title(text).starts_with(" Load, last 1 min: peak ") && picture(text).is_some()
    });
    let axis = |text: &str| picture(text).map_or(String::new(), |lines| lines[4].to_owned());
    assert!(axis(&live).contains("|-60s") && axis(&live).ends_with("now|"), "{live}");
    assert!(title(&live).contains("watched for"), "{live}");

    // The plot shows the whole history already.
    screen.press(&["-"], "a word", |text| text.contains("the whole known load is shown"));
    screen.press(&["Left"], "another", |text| text.contains("its load is not known before this"));

    let closer = |key: &str, span: &str| {
        let said = format!(" Load, last {span}: peak ");
        screen.press(&[key], &said, |text| title(text).starts_with(&said));
    };
    for (key, span) in [("+", "30 s"), ("=", "10 s"), ("+", "5 s")] {
        closer(key, span);
    }
    // Wait until five seconds are known, so that a plot of two seconds can be moved back in time.
    screen.wait_for("5 s that are known", |text| {
        title(text).starts_with(" Load, last 5 s: ") && !title(text).contains("watched for")
    });
    closer("+", "2 s");
    let held = screen.press(&["Left", "h"], "a part that is held", |text| {
        title(text).contains(" ago, paused: End resumes: peak ") && picture(text).is_some()
    });
    assert!(title(&held).starts_with(" Load, 2 s until "), "{held}");
    assert!(!axis(&held).contains("now") && axis(&held).matches(':').count() >= 2, "{held}");
    // Time passes, and the plot does not move, also when paused.
    let later = screen.wait_for("time to pass", |text| {
        title(text) != title(&held)
            && title(text).contains(" ago, paused")
            && picture(text).is_some()
    });
    assert_eq!(picture(&later), picture(&held));
    screen.keys(&["Space"]);
    screen.wait_for_status("PAUSED");
    let paused = screen.wait_for("the load", |text| picture(text) == picture(&held));
    let on = screen.press(&["Right"], "a step on", |text| {
        title(text).contains("paused") && title(text) != title(&paused) && picture(text).is_some()
    });
    // The oldest part is as old as the held one, or older if the history has grown since.
    let oldest = screen.press(&["Home"], "the oldest", |text| {
        title(text).contains("paused") && title(text) != title(&on) && picture(text).is_some()
    });
    screen.press(&["h"], "no older", |text| text.contains("its load is not known before this"));
    assert!(title(&oldest).starts_with(" Load, 2 s until "), "{oldest}");
    screen.press(&["-"], "a wider look", |text| title(text).starts_with(" Load, 5 s until "));
    screen.press(&["End"], "now", |text| {
        title(text).starts_with(" Load, last 5 s: ") && axis(text).ends_with("now|")
    });
    screen.keys(&["Space"]);
    screen.wait_for_status("LIVE");

    // If the plot does not fit on the screen, the keys scroll it into view.
    screen.resize(60, 12);
    screen.wait_for("the figures", |text| text.contains("Figures") && title(text).is_empty());
    screen.press(&["+"], "the load", |text| {
        title(text).starts_with(" Load, last 2 s: ") && axis(text).ends_with("now|")
    });
    screen.quit();
}
