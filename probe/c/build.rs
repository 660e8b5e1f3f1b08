//! How the shared library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpfp.so.{major}");
    // `nodelete`: destructors of threads and the process's exit handlers call into the library, so
    // it must stay mapped even when a plugin that is linked with it is unloaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // GNU ld writes unwind tables for the PLT stubs, so that exceptions thrown by signal handlers
    // can pass through them.
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=bfd");
}
