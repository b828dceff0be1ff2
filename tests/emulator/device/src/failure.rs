//! Failures that a test asks for: `HETCCL_EMULATOR_FAIL="function:n[:code]"`, several separated by commas.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Code;

struct Failure {
    function: String,
    call: u64,
    code: Code,
    calls: AtomicU64,
}

static FAILURES: OnceLock<Vec<Failure>> = OnceLock::new();

/// Counts a call of `function` and says whether it is one that must fail.
///
/// `function` may have one of the suffixes that versions of a function differ by (`_v2`, `_ptsz`); the setting may name it
/// with or without.
pub fn check(function: &str) -> Result<(), Code> {
    let failures =
        FAILURES.get_or_init(|| parse(&std::env::var("HETCCL_EMULATOR_FAIL").unwrap_or_default()));
    for failure in failures.iter().filter(|failure| plain(&failure.function) == plain(function)) {
        if failure.calls.fetch_add(1, Ordering::Relaxed) + 1 == failure.call {
            return Err(failure.code);
        }
    }
    Ok(())
}

fn plain(name: &str) -> &str {
    let name = name.strip_suffix("_ptsz").or(name.strip_suffix("_ptds")).unwrap_or(name);
    ["_v2", "_v3", "_v4"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}

fn parse(text: &str) -> Vec<Failure> {
    let mut failures = Vec::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let mut parts = entry.split(':');
        let function = parts.next().unwrap_or_default().to_owned();
        let call = parts.next().and_then(|part| part.parse().ok());
        let code = parts.next().map_or(Some(Code::UNKNOWN.0), |part| part.parse().ok());
        match (call, code) {
            (Some(call), Some(code)) => {
                failures.push(Failure {
                    function,
                    call,
                    code: Code(code),
                    calls: AtomicU64::new(0),
                });
            }
            _ => eprintln!(
                "hetccl emulator: HETCCL_EMULATOR_FAIL has {entry}, which is not function:n[:code]"
            ),
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_understood() {
        let failures = parse("cuMemAlloc:3:2, hipMalloc:1,wrong");
        assert_eq!(failures.len(), 2);
        assert_eq!((failures[0].call, failures[0].code), (3, Code::OUT_OF_MEMORY));
        assert_eq!(failures[1].code, Code::UNKNOWN);
        assert_eq!(plain("cuMemcpyDtoH_v2_ptds"), "cuMemcpyDtoH");
    }
}
