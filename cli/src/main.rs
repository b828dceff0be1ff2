//! The hetccl command line.
fn main() {}
