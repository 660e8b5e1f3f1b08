//! Tests of recordings, whose files may hang.

use std::sync::mpsc::{self, Sender};
use std::thread;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use pfp_read::files::json::Existing;
use pfp_read::files::recording::Writer;
use pfp_read::source::open;

/// Number of snapshots, one per second.
const LENGTH: usize = 31;

/// The app on a recording, at its last snapshot.
fn desk_of_recording() -> (Desk, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pfprec");
    let mut source = Synthetic::new();
    let first = source.poll().unwrap();
    let mut writer = Writer::create(&path, Existing::Keep, 1_000_000_000, &first, &[]).unwrap();
    for _ in 1..LENGTH {
        writer.append(&source.poll().unwrap(), &[]).unwrap();
    }
    drop(writer);
    let mut desk = desk();
    let now = desk.now;
    desk.app.watch(open(&path).unwrap(), now);
    wait_until_at(&mut desk, LENGTH - 1);
    (desk, folder)
}

fn place(desk: &Desk) -> Option<usize> {
    desk.common.replay.as_ref()?.at
}

/// Polls until the snapshot with this index is on the screen, and nothing is read any more.
#[track_caller]
fn wait_until_at(desk: &mut Desk, at: usize) {
    let start = Instant::now();
    while place(desk) != Some(at) || desk.app.reading.is_some() {
        assert!(start.elapsed() < Duration::from_secs(60), "it stays at {:?}", place(desk));
        thread::sleep(Duration::from_millis(1));
        desk.now += Duration::from_millis(10);
        desk.app.poll(desk.now);
        desk.settle();
    }
}

/// Lets all reads of the recording wait until the sender is dropped.
fn hang(desk: &mut Desk) -> Sender<()> {
    let (hangs, until) = mpsc::channel();
    let (starts, started) = mpsc::channel();
    let recording = desk.common.recording().unwrap();
    let job = move |_: &mut _| {
        starts.send(()).unwrap();
        until.recv()
    };
    drop(recording.start(job).unwrap());
    started.recv().unwrap();
    hangs
}

fn first_line(desk: &Desk) -> String {
    let mut terminal = Terminal::new(TestBackend::new(120, 30)).unwrap();
    terminal.draw(|frame| view::draw(frame, desk)).unwrap();
    let cells = &terminal.backend().buffer().content()[..120];
    cells.iter().map(|cell| cell.symbol()).collect()
}

#[test]
fn keys_are_answered_while_the_file_hangs() {
    let (mut desk, folder) = desk_of_recording();
    let hangs = hang(&mut desk);
    let start = Instant::now();
    desk.press(",^@#5\n");
    // Records, windows, and a file.
    desk.press("4\x1b\n\x1b");
    let path = folder.path().join("b.json");
    desk.press("w");
    desk.clear();
    desk.press(&format!("{}\n", path.display()));
    assert_eq!(place(&desk), Some(LENGTH - 1));
    for (seconds, late) in [(0, None), (1, Some("waiting for the file: 1 s")), (4, Some(": 5 s"))] {
        desk.now += Duration::from_secs(seconds);
        let now = desk.now;
        desk.app.poll(now);
        let line = first_line(&desk);
        assert_eq!(line.contains("waiting for the file"), late.is_some(), "{line}");
        assert!(late.is_none_or(|late| line.contains(late)), "{line}");
    }
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(desk.next_poll().is_some_and(|due| due > desk.now), "it looks again, not at once");
    drop(hangs);
    wait_until_at(&mut desk, 4);
    assert!(!first_line(&desk).contains("waiting"));
    desk.wait_until_saved();
    let saved = read(&path).unwrap();
    assert_eq!(saved.taken_unix_ns, desk.snapshot().taken_unix_ns + 26_000_000_000);

    let _hangs = hang(&mut desk);
    desk.press("$q");
    assert!(desk.quit);
}

#[test]
fn each_key_goes_on_from_where_the_last_one_leads() {
    let (mut desk, _folder) = desk_of_recording();
    let hangs = hang(&mut desk);
    desk.press(",,,");
    drop(hangs);
    wait_until_at(&mut desk, LENGTH - 4);
    let hangs = hang(&mut desk);
    desk.press("^..");
    drop(hangs);
    wait_until_at(&mut desk, 2);
    // Playing goes on from there, up to the end.
    desk.press("]]]]]] ");
    wait_until_at(&mut desk, LENGTH - 1);
}

#[test]
fn a_file_that_is_not_written_yet_is_neither_replaced_nor_forgotten() {
    let (mut desk, folder) = desk_of_recording();
    let hangs = hang(&mut desk);
    let name = |name: &str| folder.path().join(name);
    let write = |desk: &mut Desk, path: &std::path::Path| {
        desk.press("w");
        desk.clear();
        desk.press(&format!("{}\n", path.display()));
    };
    write(&mut desk, &name("first.json"));
    write(&mut desk, &name("second.json"));
    desk.press("\x1b");
    desk.press("q");
    assert!(!desk.quit, "the first file is not written");
    drop(hangs);
    let start = Instant::now();
    while !name("first.json").exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "it is never written");
        thread::sleep(Duration::from_millis(1));
        desk.now += Duration::from_millis(10);
        let now = desk.now;
        desk.app.poll(now);
    }
    desk.wait_until_saved();
    assert!(!name("second.json").exists());
    desk.press("q");
    assert!(desk.quit);

    let (mut desk, _folder) = desk_of_recording();
    let _hangs = hang(&mut desk);
    write(&mut desk, &name("third.json"));
    desk.press("qq");
    assert!(desk.quit, "the second press leaves");
}
