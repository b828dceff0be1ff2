//! Functions of Open MPI are looked up at their first call. So the component can be loaded into an Open MPI of another line,
//! which lacks some of them, and refuse it in words (`hetccl_mca::check_running`).

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,lazy");
    println!("cargo::rerun-if-changed=build.rs");
}
