//! The limits and settings of a host that matter, read from `/proc` and `/sys`.

use std::fs;

use super::Line;
use crate::sysfs::System;

/// Shared memory below this is little for a node full of ranks.
const SMALL_SHM_BYTES: u64 = 256 << 20;
/// Locked memory below this keeps RDMA from registering buffers.
const SMALL_MEMLOCK_BYTES: u64 = 1 << 30;

/// Limits and settings that matter.
pub(super) fn limits(system: &System) -> Vec<Line> {
    vec![shared_memory(), locked_memory(system), peer_processes(system), iommu(system)]
}

fn shared_memory() -> Line {
    let what = "room in /dev/shm";
    match crate::info::shared_memory_bytes() {
        Some(bytes) if bytes >= SMALL_SHM_BYTES => Line::yes(what, super::mib(bytes)),
        Some(bytes) => Line::no(
            what,
            format!("it has {}; give it more (containers: --shm-size)", super::mib(bytes)),
        ),
        None => Line::no(what, "its size can't be found out"),
    }
}

fn locked_memory(system: &System) -> Line {
    let what = "memory may be locked";
    let text = fs::read_to_string(system.proc.join("self/limits")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("Max locked memory"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3));
    match soft {
        Some("unlimited") => Line::yes(what, "as much as there is"),
        Some(number) => match number.parse::<u64>() {
            Ok(bytes) if bytes >= SMALL_MEMLOCK_BYTES => Line::yes(what, super::mib(bytes)),
            Ok(bytes) => Line::no(
                what,
                format!("the limit is {} bytes; RDMA wants `ulimit -l unlimited`", bytes),
            ),
            Err(_) => Line::no(what, format!("the limit is not understood: {number}")),
        },
        None => Line::no(what, "the limit can't be found out"),
    }
}

fn peer_processes(system: &System) -> Line {
    let what = "processes may read each other's memory (CMA)";
    match fs::read_to_string(system.proc.join("sys/kernel/yama/ptrace_scope")) {
        Ok(text) if text.trim() == "0" => Line::yes(what, "ptrace_scope is 0"),
        Ok(text) => {
            Line::no(what, format!("kernel.yama.ptrace_scope is {}; 0 allows it", text.trim()))
        }
        Err(_) => Line::yes(what, "no Yama here; a container's seccomp filter may still forbid it"),
    }
}

fn iommu(system: &System) -> Line {
    let what = "peers reach each other without an IOMMU between";
    let units = fs::read_dir(system.sys.join("class/iommu")).map_or(0, |entries| entries.count());
    let command_line = fs::read_to_string(system.proc.join("cmdline")).unwrap_or_default();
    let passes = ["iommu=pt", "iommu.passthrough=1"].iter().any(|w| command_line.contains(w));
    match (units, passes) {
        (0, _) => Line::yes(what, "no IOMMU is active"),
        (_, true) => Line::yes(what, "the IOMMU passes through (iommu=pt)"),
        _ => Line::no(
            what,
            "an IOMMU translates: peer-to-peer DMA may be slow or refused; iommu=pt on the kernel's command \
             line, and ACS off on the PCIe bridges, help",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_locked_memory_is_told_and_no_iommu_is_fine() {
        let root = std::env::temp_dir().join(format!("hetccl-limits-{}", std::process::id()));
        let system = System { proc: root.join("proc"), sys: root.join("sys") };
        fs::create_dir_all(system.proc.join("self")).unwrap();
        fs::write(
            system.proc.join("self/limits"),
            "Limit                     Soft Limit           Hard Limit           Units\n\
             Max locked memory         65536                65536                bytes\n",
        )
        .unwrap();
        let locked = locked_memory(&system);
        assert!(!locked.yes && locked.why.contains("ulimit -l unlimited"), "{}", locked.why);
        assert!(iommu(&system).yes);
        fs::remove_dir_all(&root).unwrap();
    }
}
