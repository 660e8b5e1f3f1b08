//! How the shared library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpfp.so.{major}");
    // Threads that end and the process's exit call back: a plugin that was linked
    // with the library and is unloaded must not take it along.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // It tells unwinders of the stubs that it makes: exceptions of signal handlers come through.
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=bfd");
}
