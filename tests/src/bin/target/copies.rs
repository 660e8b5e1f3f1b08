//! A program that loads plugins, each with its own copy of pfp.

use std::ffi::{CString, c_char, c_void};
use std::hint::black_box;
use std::mem;
use std::sync::Barrier;
use std::thread;

use pfp_tests::script::{pause, say};

/// Number of calls of a plugin's `work` in a row, in most scenarios.
const TIMES: i32 = 200;
/// Number of threads that start and end.
const THREADS: i32 = 40;

type Inside = extern "C" fn(i32) -> i32;
type Work = extern "C" fn(Option<Inside>, i32) -> i32;

extern "C" fn inside(argument: i32) -> i32 {
    pfp::scope!("inside");
    spin();
    argument
}

fn spin() {
    for turn in 0..20_000 {
        black_box(turn);
    }
}

/// Looks up a function of a library.
fn symbol(library: *mut c_void, name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).expect("it is plain text");
    // SAFETY: the library is open, and the name is NUL-terminated.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

fn load(path: &str) -> *mut c_void {
    let path = CString::new(path).expect("it is plain text");
    // SAFETY: the path is NUL-terminated.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null(), "{path:?} can be loaded");
    library
}

fn work_of(path: &str) -> Work {
    let found = symbol(load(path), "work").expect("it has one");
    // SAFETY: plugins export this function with this type.
    unsafe { mem::transmute::<*mut c_void, Work>(found) }
}

/// Measures three nested regions: one of this program, inside it one of the plugin, and inside that
/// region another one of this program.
fn nested(work: Work, times: i32) {
    for turn in 0..times {
        pfp::scope!("outside");
        spin();
        assert_eq!(work(Some(inside), turn), turn + 1);
    }
}

/// Runs the scenario `how` with these plugins.
pub(crate) fn run(how: &str, libraries: &[String]) {
    let plugins = || libraries.iter().map(|path| work_of(path));
    match how {
        "nested" => plugins().for_each(|work| nested(work, TIMES)),
        // The plugins measure first, so that a plugin's copy of pfp leads, and not this program's.
        "plugins-first" => {
            for work in plugins() {
                assert_eq!(work(None, 1), 2);
                nested(work, TIMES);
            }
        }
        // All plugins are loaded, and measure for the first time at once.
        "at-once" => {
            let barrier = Barrier::new(libraries.len());
            thread::scope(|threads| {
                for path in libraries {
                    threads.spawn(|| {
                        barrier.wait();
                        let work = work_of(path);
                        barrier.wait();
                        // A copy that would have to wait too long for the others measures nothing.
                        assert_eq!(work(None, 0), 1);
                        barrier.wait();
                        (0..TIMES).for_each(|turn| assert_eq!(work(None, turn), turn + 1));
                    });
                }
            });
        }
        "threads" => {
            let works: Vec<_> = plugins().collect();
            for _ in 0..THREADS {
                let works = works.clone();
                let thread = thread::spawn(move || works.iter().for_each(|work| nested(*work, 5)));
                thread.join().expect("it ends");
            }
            say("threads", &[&THREADS]);
        }
        "paused" => {
            let paths = libraries.iter();
            let works: Vec<_> = paths
                .map(|path| {
                    let library = load(path);
                    let set = symbol(library, "pause_all");
                    // SAFETY: plugins export these functions with these types.
                    let set = unsafe {
                        mem::transmute::<*mut c_void, extern "C" fn(i32)>(set.expect("it has one"))
                    };
                    (work_of(path), set)
                })
                .collect();
            works.iter().for_each(|(work, _)| nested(*work, 1));
            pfp::set_enabled(false);
            works.iter().for_each(|(work, _)| nested(*work, 10));
            pfp::set_enabled(true);
            works.iter().for_each(|(work, _)| nested(*work, 1));
            // The plugin pauses and resumes, too.
            (works[0].1)(1);
            assert!(!pfp::is_enabled());
            works.iter().for_each(|(work, _)| nested(*work, 10));
            (works[0].1)(0);
            assert!(pfp::is_enabled());
            works.iter().for_each(|(work, _)| nested(*work, 1));
            pause("done");
            works.iter().for_each(|(work, _)| nested(*work, TIMES));
        }
        "everything" => {
            let everything = symbol(load(&libraries[0]), "everything").expect("it has one");
            // SAFETY: plugins export this function with this type.
            let everything =
                unsafe { mem::transmute::<*mut c_void, extern "C" fn(*const c_char)>(everything) };
            let file = CString::new(libraries[1].as_str()).expect("it is plain text");
            pfp::scope!("outside");
            everything(file.as_ptr());
            let names: Vec<_> = pfp::points().map(pfp::Point::name).collect();
            assert!(!names.iter().any(|name| name == "by hand"), "the plugin's: {names:?}");
        }
        "forks" => {
            let works: Vec<_> = plugins().collect();
            works.iter().for_each(|work| nested(*work, TIMES));
            // SAFETY: the process has only this thread.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // The plugin's region is the child's first one.
                works.iter().for_each(|work| assert_eq!(work(None, 0), 1));
                works.iter().for_each(|work| nested(*work, 7));
                say("child", &[&std::process::id()]);
                pause("forked");
                // SAFETY: ends the child at once, whatever state it is in.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            // SAFETY: `status` outlives the call, and the process is our child.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert!(waited == child && status == 0, "{status}");
        }
        other => panic!("there is no way {other:?}"),
    }
    say("times", &[&TIMES]);
    pause("done");
}
