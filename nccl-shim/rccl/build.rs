//! The library's soname, and that its functions are exported.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=hetccl_exports");
    println!("cargo::rustc-cfg=hetccl_rccl");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librccl.so.1");
    // Engine threads run, and streams use its memory, as long as the process lives.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
