//! A target under libFuzzer: the one that HETCCL_FUZZ_TARGET names.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("HETCCL_FUZZ_TARGET").unwrap_or_default();
        match hetccl_fuzz::target(&name) {
            Some(target) => target.1,
            None => panic!("HETCCL_FUZZ_TARGET is {name:?}, which is no target"),
        }
    });
    target(bytes);
});
