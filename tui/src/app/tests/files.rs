//! Tests of saving files.

use super::*;

#[test]
fn snapshots_are_written_and_never_over_another_file_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    let mut desk = desk();
    let save = |desk: &mut Desk| {
        desk.press("w");
        desk.clear();
        desk.press(path.to_str().unwrap());
        desk.press("\n");
        desk.wait_until_saved();
    };
    save(&mut desk);
    let first = read(&path).unwrap();
    assert_eq!(Some(&first), desk.common.model.snapshot());

    std::fs::write(&path, "precious").unwrap();
    save(&mut desk);
    assert!(matches!(desk.overlay, Some(Overlay::Replace(_))));
    desk.press("n");
    assert!(matches!(desk.overlay, Some(Overlay::Typed(_))));
    desk.press("\x1b");
    assert_eq!(desk.overlay, None);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");

    save(&mut desk);
    desk.press("y");
    desk.wait_until_saved();
    assert_eq!(read(&path).unwrap(), first);
}

#[test]
fn the_name_says_in_which_form_a_snapshot_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut desk = desk();
    let mut save = |name: &str| {
        let path = folder.path().join(name);
        desk.press("w");
        desk.clear();
        desk.press(path.to_str().unwrap());
        desk.press("\n");
        desk.wait_until_saved();
        let error = match desk.overlay.clone() {
            Some(Overlay::Typed(prompt)) => {
                // The prompt keeps the name, so that the user can correct it.
                assert_eq!(prompt.text(), path.to_str().unwrap());
                desk.press("\x1b");
                prompt.error.unwrap_or_default()
            }
            _ => String::new(),
        };
        (path, error)
    };
    let (plain, _) = save("a.json");
    let (packed, _) = save("a.json.zst");
    assert_eq!(read(&plain).unwrap(), read(&packed).unwrap());
    assert!(std::fs::read(&packed).unwrap().starts_with(&[0x28, 0xb5, 0x2f, 0xfd]));
    // This process has no segment, so nothing is written.
    for raw in ["a.pfp", "a.pfp.zst"] {
        let (path, message) = save(raw);
        assert!(message.contains("not written: expected one process"), "{message}");
        assert!(!path.exists());
    }
    let (path, message) = save("no-such-folder/a.json");
    assert!(message.contains("not written") && !path.exists(), "{message}");
}
