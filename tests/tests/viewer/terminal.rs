//! The terminal: restored after a fault, and used within its abilities, at every size.

use pfp_tests::needs_a_screen;
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::pty::Pty;
use pfp_tests::screen::{heading, row};
use pfp_tests::target::{Target, wait_for};

const STEADY: &str = env!("CARGO_BIN_EXE_steady");

#[test]
fn a_panic_restores_the_terminal_and_its_message_is_readable() {
    needs_a_screen!();
    let place = Place::new();
    let screen = place.screen(100, 20);
    screen.line("stty -g > before");
    screen.line(&format!("RUST_BACKTRACE=0 {}", env!("CARGO_BIN_EXE_faulty")));
    screen.wait_for_status("LIVE");
    assert!(screen.has_mouse(), "there is nothing to give back");
    std::fs::write(place.path("now"), "").unwrap();
    // The shell's own screen is back, with a cursor.
    let text = screen.wait_for_shell();
    let mut lines = text.lines();
    assert!(lines.any(|line| line.starts_with("thread 'main'")), "{text}");
    assert!(lines.any(|line| line == "a fault in the midst of a poll"), "{text}");
    let rest: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    assert!(rest.last().is_some_and(|line| line.starts_with("shell>")), "over it:\n{text}");
    assert!(!screen.has_mouse(), "{text}");
    screen.line("stty -g > after; echo still $((40 + 2))");
    let text = screen.wait_for("the shell to work", |text| text.contains("still 42"));
    assert!(text.contains("echo still"), "what is typed is not seen:\n{text}");
    let setting = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    assert_eq!(setting("before"), setting("after"));
}

/// The key of each screen, and a text that only this screen shows.
const SCREENS: [(&str, &str); 6] = [
    ("2", "Figures"),
    ("3", "Load%"),
    ("4", "long,"),
    ("5", "baseline"),
    ("6", "watching"),
    ("1", "tick"),
];

#[test]
fn every_screen_works_in_ascii_on_request() {
    needs_a_screen!();
    let place = Place::new();
    let _target = place.start(STEADY, &[]);
    for (width, height) in [(300, 100), (100, 30), (40, 8)] {
        let screen = place.screen(width, height);
        screen.pfp_top("-i 0.1 --sort name --ascii");
        screen.wait_for_status("LIVE");
        // A row of the table begins with a glyph that is not part of `row`.
        screen.wait_for("a row", |text| text.contains(">*") && text.contains(" round"));
        for (key, sign) in SCREENS {
            let text = screen.press(&[key], sign, |text| {
                text.contains(sign) && text.lines().next().is_some_and(|l| l.ends_with("LIVE"))
            });
            assert!(text.is_ascii(), "{width} x {height}, key {key}:\n{text}");
        }
        let text = screen.press(&["?"], "the help", |text| text.contains(" Keys"));
        assert!(text.is_ascii(), "{text}");
    }
}

#[test]
fn every_screen_fits_the_terminal() {
    needs_a_screen!();
    let place = Place::new();
    let _target = place.start(STEADY, &[]);
    for (width, height) in [(300, 100), (40, 8)] {
        let screen = place.screen(width, height);
        screen.line(&format!("NO_COLOR=1 {} -i 0.1 --sort name", pfp_top().display()));
        screen.wait_for_status("LIVE");
        if width > 80 {
            screen.wait_for("the rows", |text| row(text, "tick").is_some());
        }
        for (key, sign) in SCREENS {
            screen.keys(&[key]);
            // Each screen has the header and the footer.
            let text = screen.wait_for(sign, |text| {
                let lines: Vec<&str> = text.lines().collect();
                text.contains(sign)
                    && lines.first().is_some_and(|line| line.ends_with("LIVE"))
                    && lines.len() == usize::from(height)
                    && lines.last().is_some_and(|line| {
                        line.contains(if key == "1" { "q quit" } else { "Esc back" })
                    })
            });
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width.into()), "{text}");
        }
        let styled = screen.styled();
        let cursor = styled.lines().find(|line| line.contains(">●")).expect("a selected row");
        let before = cursor.split(">●").next().unwrap_or_default();
        let codes = before.split("\x1b[").filter_map(|rest| rest.split_once('m'));
        let is_reverse = codes.flat_map(|(codes, _)| codes.split(';')).any(|code| code == "7");
        assert!(is_reverse, "{cursor:?}");
    }
}

/// A terminal that supports mode 2026 shows only complete frames. Ctrl-L redraws the screen after
/// another program has written over it.
#[test]
fn frames_are_complete_and_ctrl_l_redraws_the_screen() {
    const BEGIN: &str = "\x1b[?2026h";
    const END: &str = "\x1b[?2026l";
    const CLEAR: &str = "\x1b[1;1H\x1b[J";
    needs_a_screen!();
    let place = Place::new();
    let [_other, target] = [place.start(STEADY, &[]), place.start(STEADY, &[])];
    let screen = place.screen(100, 30);
    // A bare number selects a process.
    screen.pfp_top(&format!("{} -i 0.1", target.pid()));
    let text = screen.wait_for_status("LIVE");
    assert!(text.contains(&format!("steady[{}]", target.pid())), "{text}");
    let raw = place.path("raw");
    screen.tap(&raw);
    let written = || String::from_utf8_lossy(&std::fs::read(&raw).unwrap_or_default()).into_owned();
    let frames = |text: &str| text.matches(END).count();
    let text = wait_for("some frames", || Some(written()).filter(|text| frames(text) >= 5));
    // Keep only the text from the first complete frame to the end of the last.
    let text = text.split_once(BEGIN).map_or("", |(_, rest)| rest);
    let text = text.rsplit_once(END).map_or("", |(frames, _)| frames);
    for between in text.split(END).skip(1) {
        let (before, frame) = between.split_once(BEGIN).expect("each frame begins");
        assert!(before.is_empty() && !frame.contains(BEGIN), "outside of a frame: {before:?}");
    }
    assert!(!text.contains(CLEAR), "a frame clears the screen: it flickers");
    screen.keys(&["C-l"]);
    wait_for("the screen to be drawn anew", || written().contains(CLEAR));
    screen.wait_for_status("LIVE");
}

/// The headings without the scale of the bars, which depends on the figures.
fn columns(text: &str) -> Vec<String> {
    let words = heading(text).split_whitespace();
    words.filter(|word| !word.starts_with(char::is_numeric)).map(str::to_owned).collect()
}

/// The screen restores columns and sorting from the last session; printed tables do not. A broken
/// file of the last session is ignored.
#[test]
fn columns_and_sorting_are_kept_for_the_next_session() {
    needs_a_screen!();
    let place = Place::new();
    let _target = place.start(STEADY, &[]);
    std::fs::write(place.path("config.toml"), "").unwrap();
    let file = place.path("state/pfp/chosen.json");
    let screen = place.screen(130, 30);
    let variables = "XDG_STATE_HOME=$PWD/state PFP_TOP_CONFIG=config.toml";
    let begin = || {
        screen.line(&format!("{variables} {} -i 0.1", pfp_top().display()));
        screen.wait_for_status("LIVE");
        // The column of waits comes with the second picture.
        let text = screen.wait_for("the rows", |text| {
            text.contains(" tick ") && heading(text).contains("Waits for")
        });
        columns(&text)
    };
    let first = begin();
    assert!(first.iter().any(|column| column.starts_with("Load%")), "{first:?}");
    screen.quit();
    assert!(!file.exists(), "nothing was chosen");
    begin();
    // Sort by the next column in reverse order, and hide a column.
    screen.press(&["s"], "the menu", |text| text.contains("Sort by"));
    screen.press(&["j", "Enter", "I", "c"], "the columns", |text| {
        text.contains("Columns, from left to right")
    });
    let text = screen.press(&["Space", "Escape"], "another heading", |text| {
        !text.contains("left to right") && columns(text) != first
    });
    let chosen = columns(&text);
    screen.quit();
    let kept = std::fs::read_to_string(&file).expect("it was kept");
    for what in ["columns", "sort", "descending"] {
        assert!(kept.contains(what), "{kept}");
    }
    assert_eq!(begin(), chosen);
    screen.quit();
    // Printed tables do not change.
    let mut command = place.command(pfp_top());
    command.env("XDG_STATE_HOME", place.path("state")).env("PFP_TOP_CONFIG", "config.toml");
    let printed = command.current_dir(place.folder()).arg("--once").output().unwrap();
    assert!(String::from_utf8_lossy(&printed.stdout).contains(" Load%"), "{printed:?}");
    std::fs::write(&file, "no JSON").unwrap();
    assert_eq!(begin(), first);
}

/// The settings file changes keys and colours. Errors in it are reported, and change nothing.
#[test]
fn the_settings_file_changes_keys_and_colours() {
    needs_a_screen!();
    let place = Place::new();
    let _target = place.start(STEADY, &[]);
    let settings = "[keys]\ntoggle = \"Y\"\nhelp = \"F2\"\n[colors]\nselected = \"white on 208\"\n";
    std::fs::write(place.path("config.toml"), settings).unwrap();
    let screen = place.screen(130, 30);
    let begin = || {
        let variables = "XDG_STATE_HOME=$PWD/state PFP_TOP_CONFIG=config.toml";
        screen.line(&format!("{variables} {} -i 0.1 --color always", pfp_top().display()));
        screen.wait_for_status("LIVE");
    };
    begin();
    screen.wait_for("the rows", |text| text.contains("●  tick"));
    screen.wait_for("the key of the help", |text| text.contains("F2 help"));
    assert!(screen.styled().contains("48;5;208"), "{}", screen.styled());
    screen.select("tick");
    screen.press(&["e", "Y"], "the point to be off", |text| text.contains("○  tick"));
    screen.press(&["F2"], "the help", |text| text.contains(" Y            switch the point"));
    screen.keys(&["Escape", "q"]);
    screen.wait_for_shell();
    std::fs::write(place.path("config.toml"), "[keys]\ntoggle = \"r\"\n").unwrap();
    begin();
    screen.press(&["q"], "the complaint", |text| text.contains("r would mean toggle and reset"));
}

/// Starts the viewer on a process, in a terminal that answers no queries.
fn unanswered(place: &Place, target: &Target, before: &str, (columns, rows): (u16, u16)) -> Pty {
    let viewer = format!("{before} exec {} -i 0.1 -p {}", pfp_top().display(), target.pid());
    Pty::start(place.command("sh").args(["-c", &viewer]), columns, rows)
}

#[test]
fn a_terminal_that_answers_nothing_is_drawn_on_and_cleared() {
    const CLEAR: &str = "\x1b[1;1H\x1b[J";
    let place = Place::new();
    let target = place.start_watched(STEADY, &[]);
    // A serial line that does not know its size reports a size of zero.
    let serial = unanswered(&place, &target, "", (0, 0));
    serial.wait_for("the table", |text| text.contains("tick"));
    let mut terminal = unanswered(&place, &target, "", (100, 30));
    let before = terminal.settings_before();
    terminal.wait_for("the table", |text| text.contains("tick"));
    assert_ne!(terminal.settings(), before, "raw mode");
    let cleared = terminal.written().matches(CLEAR).count();
    terminal.keys("\x0c");
    terminal.wait_for("another clear", |text| text.matches(CLEAR).count() > cleared);
    let frames = terminal.written().matches("\x1b[?2026l").count();
    terminal.wait_for("more frames", |text| text.matches("\x1b[?2026l").count() > frames + 2);
    assert!(!terminal.written().contains("\x1b[6n"), "it asks where the cursor is");
    terminal.keys("q");
    assert!(terminal.end().success());
    assert_eq!(terminal.settings(), before);
}

#[test]
fn the_end_of_standard_input_is_not_a_lost_terminal() {
    let place = Place::new();
    let target = place.start_watched(STEADY, &[]);
    let mut terminal = unanswered(&place, &target, "true |", (100, 30));
    let frames = |text: &str| text.matches("\x1b[?2026l").count();
    terminal.wait_for("some frames", |text| frames(text) > 3);
    terminal.keys("3");
    terminal.wait_for("the threads", |text| text.contains("ticker"));
    terminal.keys("1q");
    assert!(terminal.end().success());
}

/// With few descriptors, the screen fails to start at one of several steps.
#[test]
fn a_screen_that_fails_to_start_restores_the_terminal() {
    let place = Place::new();
    let target = place.start_watched(STEADY, &[]);
    let mut failed_late = 0;
    for descriptors in 4..16 {
        let mut terminal =
            unanswered(&place, &target, &format!("ulimit -n {descriptors};"), (100, 30));
        let before = terminal.settings_before();
        let ended = wait_for("a screen or an end", || {
            let is_drawn = terminal.written().contains("\x1b[?2026l");
            let ended = terminal.has_ended().is_some();
            (is_drawn || ended).then_some(ended)
        });
        if !ended {
            terminal.keys("q");
        }
        // A screen that fails may have drawn before.
        let failed = !terminal.end().success();
        assert_eq!(terminal.settings(), before, "{descriptors} descriptors");
        let written = terminal.written();
        let [on, off] = ["\x1b[?1049h", "\x1b[?1049l"].map(|mode| written.matches(mode).count());
        assert_eq!(on, off, "{descriptors} descriptors: the alternate screen is left");
        failed_late += usize::from(failed && on > 0);
    }
    assert!(failed_late > 0, "no start failed after the modes were set");
}

/// Pasted text goes only into an input line, and is never treated as keys.
#[test]
fn pasted_text_switches_and_resets_nothing() {
    needs_a_screen!();
    let place = Place::new();
    let _target = place.start(STEADY, &[]);
    let screen = place.screen(130, 30);
    screen.pfp_top("-i 0.1 --sort name");
    screen.wait_for_status("LIVE");
    screen.wait_for_count("tick", 10);
    for text in ["Reply", "Yes, Every", "here", "wow\r"] {
        screen.paste(text);
        let shown = screen.wait_for("the message", |text| text.contains("does not act as keys"));
        assert!(shown.contains("●  tick") && shown.contains("●  round"), "{text}:\n{shown}");
        screen.press(&["j"], "the message to go", |text| !text.contains("does not act as keys"));
    }
    screen.press(&["/"], "the line", |text| text.contains(" filter: "));
    screen.paste("ti");
    screen.paste("ck\r");
    let shown = screen.wait_for("the filter", |text| text.contains(" filter: tick"));
    assert!(!shown.contains(" round"), "{shown}");
    screen.keys(&["Escape", "q"]);
    screen.wait_for_shell();
}
