//! Plugins with their own copy of pfp, loaded into a running program.

use std::path::PathBuf;
use std::process::Command;

use pfp_tests::c::{self, Compiler, Link, compile, library};
use pfp_tests::lacks;
use pfp_tests::place::{Place, text};
use pfp_tests::watch::{self, Watch};

/// A plugin in C with its own copy of pfp and this many bytes of thread-local storage.
fn plugin(bytes: usize) -> PathBuf {
    let bytes_of_own = format!("-DBYTES={bytes}");
    let flags = ["-shared", "-fPIC", "-fvisibility=hidden", "-Wl,--exclude-libs,ALL"];
    let flags = flags.into_iter().chain([bytes_of_own.as_str()]);
    let name = format!("own_storage_{bytes}.so");
    compile(Compiler::C, &name, &["own_storage.c"], Link::Static, flags)
}

fn program() -> PathBuf {
    compile(Compiler::C, "loads", &["loads.c"], Link::Without, ["-lpthread", "-ldl"])
}

/// glibc reserves only some hundred bytes of static thread-local storage for all libraries that a
/// running program loads. So a running program cannot load a library that needs more.
#[test]
fn no_library_needs_static_thread_local_storage() {
    if lacks("how libraries are linked", "objdump") {
        return;
    }
    let plugin = plugin(16);
    let ours = ["libpfp.so", "libpfp_inject.so", "lib_pfp.so", "libpfp_test_plugin.so"];
    let ours = ours.into_iter().map(|name| library().join(name));
    for library in ours.chain([plugin]) {
        let headers = c::run(Command::new("objdump").arg("-p").arg(&library));
        assert!(headers.contains("SONAME") || headers.contains("NEEDED"), "{headers}");
        assert!(!headers.contains("STATIC_TLS"), "{}: {headers}", library.display());
    }
}

/// A plugin with 64 KiB of thread-local storage gets dynamic storage. Its regions are counted, and
/// take no heap memory in a handler, even if the handler's region is the thread's first.
#[test]
fn a_plugin_with_much_thread_local_storage_is_loaded() {
    let place = Place::new();
    let mut target = place.start(program(), &[text(&plugin(1 << 16))]);
    let calls = target.reach("done").one::<u64>("calls");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    assert_eq!(watch::named(picture, "plugin").count, calls);
    assert_eq!(picture.losses.begins_missed, 0);
    target.end_well();
}

#[test]
fn forty_plugins_are_loaded() {
    let place = Place::new();
    let folder = place.path("plugins");
    std::fs::create_dir_all(&folder).expect("there is room");
    let plugin = plugin(16);
    let copies: Vec<_> = (0..40)
        .map(|at| {
            let copy = folder.join(format!("plugin{at}.so"));
            std::fs::copy(&plugin, &copy).expect("there is room");
            copy
        })
        .collect();
    let arguments: Vec<_> = copies.iter().map(|path| text(path)).collect();
    let mut target = place.start(program(), &arguments);
    target.reach("done");
    target.end_well();
}
