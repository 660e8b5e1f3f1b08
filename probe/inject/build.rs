//! How the shared library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // `nodelete`: destructors of threads and the process's exit handlers call into the library, so
    // it must stay mapped.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
