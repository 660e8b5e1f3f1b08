//! Tests of Kokkos Tools, with Debian's Kokkos.

use std::path::Path;

use pfp_read::snapshot::Loss;
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::tools;

use crate::{alone, file, run, text, unseen};

const HEADERS: &str = "/usr/include/trilinos";

#[test]
fn kernels_regions_and_copies_are_counted_exactly() {
    const ROUNDS: u64 = 30;
    if !Path::new(HEADERS).join("Kokkos_Core.hpp").exists() {
        let remedy = "apt-get install libtrilinos-kokkos-dev";
        return tools::missing("a program of Kokkos", "its headers are not installed", remedy);
    }
    if tools::lacks("a program of Kokkos", "c++") {
        return;
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
        ("kokkos:scan", "sum up"),
        ("kokkos:copy", "copy"),
    ] {
        assert_eq!(ran.count(domain, name), ROUNDS, "{name} in {domain}");
    }
    ran.lost_nothing();
    // Without `--inject kokkos3`, the variable that this version of Kokkos reads is not set.
    let said = unseen(&program, &arguments);
    assert!(said.contains("KOKKOS_PROFILE_LIBRARY: --inject kokkos3"), "{said}");
}

/// `run` sets the variable of later Kokkos versions by default. Those versions also report more
/// events.
#[test]
fn a_later_kokkos_loads_the_library_by_itself() {
    const ROUNDS: u64 = 30;
    let flags = ["-std=gnu11", "-ldl"];
    let source = file("kernels.c");
    let program = c::compile(Compiler::C, "kokkos_host", &[text(&source)], Link::Without, flags);
    let ran = run(&[], &program, &[&ROUNDS.to_string()]);
    for (domain, name) in [
        ("kokkos:region", "round"),
        ("kokkos:for", "fill"),
        ("kokkos:reduce", "add"),
        ("kokkos:scan", "sum up"),
        ("kokkos:fence", "wait for all"),
        ("kokkos:copy", "to"),
        ("kokkos:event", "event"),
        ("kokkos:section", "section"),
    ] {
        assert_eq!(ran.count(domain, name), ROUNDS, "{name} in {domain}");
        assert_eq!(ran.point(domain, name).wall, name == "section", "{name}");
    }
    assert_eq!(ran.amount(ran.point("kokkos:copy", "to")), 800 * ROUNDS);
    // pfp has room for 1,024 sections: the first, and 1,023 of the others.
    assert_eq!(ran.count("kokkos:section", "other"), 23);
    assert_eq!(ran.snapshot.losses[Loss::BeginsRefused], 77);
}
