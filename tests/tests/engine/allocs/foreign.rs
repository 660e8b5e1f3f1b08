//! Libraries and an interpreter that the tests did not write allocate as valgrind and heaptrack
//! count. Each program first does its work outside of the region that is compared, so that all
//! rounds in it allocate alike.

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::{Place, text};
use pfp_tests::{python, tools};

use super::compare_with_others;

/// Compares the program `allocates_NAME.c` with other profilers.
fn compare_library(name: &str, flags: &[&str], package: &str) {
    if !c::builds_with(Compiler::C, flags[0], package) {
        return;
    }
    let (program, source) = (format!("allocates-{name}"), format!("allocates_{name}.c"));
    // The linker reads the library before the program that needs it.
    let flags = [&["-Wl,--no-as-needed"], flags].concat();
    let program = c::compile(Compiler::C, &program, &[&source], Link::Static, flags);
    compare_with_others(&Place::new(), &[text(&program)], &[], 4);
}

#[test]
fn sqlite_allocates_as_others_count() {
    compare_library("sqlite", &["-lsqlite3"], "libsqlite3-dev");
}

#[test]
fn expat_allocates_as_others_count() {
    compare_library("expat", &["-lexpat"], "libexpat1-dev");
}

#[test]
fn jq_allocates_as_others_count() {
    compare_library("jq", &["-ljq"], "libjq-dev");
}

#[test]
fn lua_allocates_as_others_count() {
    compare_library("lua", &["-llua5.4", "-isystem/usr/include/lua5.4"], "liblua5.4-dev");
}

#[test]
fn python_allocates_as_others_count() {
    let found = tools::python("allocations of Python", "python", "tests/python/requirements.txt");
    let Some(interpreter) = found else { return };
    let place = Place::new();
    let packages = python::package(&place);
    let variables = [
        ("PYTHONPATH", text(&packages)),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("PYTHONMALLOC", "malloc"),
        ("PYTHONHASHSEED", "0"),
    ];
    let script = python::script("allocates.py");
    // Both numbers of rounds, 10 and 20, take the same memory as arguments.
    compare_with_others(&place, &[text(&interpreter), text(&script)], &variables, 10);
}
