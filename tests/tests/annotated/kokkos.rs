//! Kokkos Tools, with Debian's Kokkos.

use std::path::Path;

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::tools;

use crate::{alone, file, run, text};

const HEADERS: &str = "/usr/include/trilinos";

#[test]
fn kernels_regions_and_copies_are_counted_to_one() {
    const ROUNDS: u64 = 30;
    if !Path::new(HEADERS).join("Kokkos_Core.hpp").exists() {
        let remedy = "apt-get install libtrilinos-kokkos-dev";
        return tools::missing("a program of Kokkos", "its headers are not installed", remedy);
    }
    let flags = [
        &format!("-isystem{HEADERS}"),
        "-std=c++14",
        "-fext-numeric-literals",
        "-Wl,--no-as-needed",
    ];
    let flags = flags.into_iter().chain(["-ltrilinos_kokkoscore", "-ldl", "-pthread"]);
    let source = file("kernels.cpp");
    let program = c::compile(Compiler::CXX, "kokkos", &[text(&source)], Link::Without, flags);
    let arguments = [&ROUNDS.to_string()[..]];
    let ran = run(&["--inject", "kokkos3"], &program, &arguments);
    assert_eq!(ran.printed, alone(&program, &arguments));
    for (domain, name) in [
        ("kokkos:region", "round"),
        ("kokkos:for", "fill"),
        ("kokkos:reduce", "add"),
        ("kokkos:copy", "copy"),
    ] {
        assert_eq!(ran.count(domain, name), ROUNDS, "{name} in {domain}");
    }
    ran.lost_nothing();
}
