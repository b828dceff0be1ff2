//! Gives the library the name under which programs load it.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libamdhip64.so.6");
    println!("cargo::rerun-if-changed=build.rs");
}
