//! Programs of more than one source: scopes in every kind of C++ function, plugins that are loaded
//! and unloaded, and forked children.

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::{Place, text};
use pfp_tests::watch::{self, Watch};

#[test]
fn scopes_measure_in_every_kind_of_cxx_function() {
    let sources = ["scopes.cpp", "scopes_other.cpp", "scopes_without.cpp"];
    for compiler in Compiler::all().filter(|compiler| compiler.is_cxx()) {
        for link in [Link::Static, Link::Shared] {
            let name = format!("scopes-{link:?}");
            let program = c::compile(compiler, &name, &sources, link, ["-lpthread"]);
            let place = Place::new();
            let mut target = place.start(&program, &[]);
            target.reach("done");
            let mut watch = Watch::attach(&place, &target);
            let picture = watch.poll();
            for (name, count) in [
                ("constructor", 1),
                // One point in two sources, and in two bodies of a template.
                ("in a header", 200),
                ("in the other source", 100),
                ("template", 100),
                ("lambda", 30),
                // Ten nested regions, left by an exception.
                ("throws", 200),
                // The count since its last reset.
                ("an object", 3),
                ("made 7", 1),
            ] {
                assert_eq!(watch::named(picture, name).count, count, "{compiler:?} {name}");
            }
            assert!(picture.points.iter().all(|point| point.name != "nothing"));
            assert_eq!(picture.name, "scopes 7", "{compiler:?}");
            let here = picture.points.iter().find(|point| point.name == "an object");
            let here = here.expect("it was found above");
            assert!(here.file.ends_with("scopes.cpp") && here.line > 0, "{here:?}");
            assert!(picture.lanes.iter().any(|lane| lane.lane.name.starts_with(b"main 7")));
            assert_eq!(picture.losses.mismatched_ends, 0, "{compiler:?}");
            // Destructors of static objects measure without harm, too.
            target.end_well();
        }
    }
}

#[test]
fn a_reloaded_plugin_continues_its_point() {
    for compiler in Compiler::all().filter(|compiler| !compiler.is_cxx()) {
        let plugin =
            c::compile(compiler, "plugin.so", &["plugin.c"], Link::Shared, ["-shared", "-fPIC"]);
        let host = c::compile(compiler, "host", &["host.c"], Link::Shared, ["-ldl", "-lpthread"]);
        let place = Place::new();
        let mut target = place.start(&host, &[text(&plugin)]);
        let said = target.reach("unloaded").clone();
        let mut watch = Watch::attach(&place, &target);
        let picture = watch.poll();
        // One point over all loads of the plugin; its name outlives the plugin.
        assert_eq!(watch::named(picture, "plugin").count, said.one::<u64>("calls"));
        assert_eq!(watch::named(picture, "host").count, said.one::<u64>("loads"));
        assert_eq!(picture.losses.mismatched_ends, 0);
        target.end_well();
    }
}

#[test]
fn a_child_has_points_of_its_own() {
    for link in [Link::Static, Link::Shared] {
        let flags = ["-shared", "-fPIC"];
        let plugin = c::compile(Compiler::C, "child-plugin.so", &["plugin.c"], Link::Shared, flags);
        // The host's own functions take precedence, so the plugin measures through them.
        let flags = ["-ldl", "-lpthread", "-rdynamic"];
        let host = c::compile(Compiler::C, &format!("forks-{link:?}"), &["host.c"], link, flags);
        let place = Place::new();
        let mut target = place.start(&host, &[text(&plugin), "forks"]);
        let child = target.reach("done").all::<u64>("child");
        let [child, calls] = child[0][..] else { panic!("{child:?}") };
        let pid = u32::try_from(child).expect("it is a process's number");
        assert_ne!(pid, target.pid());
        let mut watch = Watch::attach_to(&place, pid);
        let picture = watch.poll();
        assert_eq!(watch::named(picture, "in the child").count, calls, "{link:?}");
        assert_eq!(watch::total(picture, 1).count, calls, "{link:?}");
        // The child knows its parent's points, and has no measurements of them.
        for name in ["plugin", "host"] {
            assert_eq!(watch::named(picture, name).count, 0, "{link:?} {name}");
        }
        target.go();

        let said = target.reach("unloaded").clone();
        let mut watch = Watch::attach(&place, &target);
        let picture = watch.poll();
        assert_eq!(watch::named(picture, "host").count, said.one::<u64>("loads"), "{link:?}");
        assert_eq!(watch::total(picture, 1).count, said.one::<u64>("loads"), "{link:?}");
        assert_eq!(watch::named(picture, "plugin").count, said.one::<u64>("calls"), "{link:?}");
        target.end_well();
    }
}
