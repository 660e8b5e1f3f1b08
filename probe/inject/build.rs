//! How the shared library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Its threads' ends and the process's exit call back: nobody may unload it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
