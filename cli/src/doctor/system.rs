//! What the kernel says of this host, read from `/proc` and `/sys`.

use std::fs;
use std::path::{Path, PathBuf};

use hetccl_runtime::Rdma;
use hetccl_runtime::rdma::largest_region_bytes;

use super::Line;

/// Shared memory below this is little for a node full of ranks.
const SMALL_SHM_BYTES: u64 = 256 << 20;
/// Locked memory below this keeps RDMA from registering buffers.
const SMALL_MEMLOCK_BYTES: u64 = 1 << 30;

/// Where the kernel's files are.
pub(super) struct System {
    proc: PathBuf,
    sys: PathBuf,
}

/// How far a NIC is from a device, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Distance {
    Switch,
    Node,
    Far,
    Unknown,
}

impl Distance {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Distance::Switch => "behind one PCIe bridge",
            Distance::Node => "on one NUMA node",
            Distance::Far => "on another NUMA node",
            Distance::Unknown => "place unknown",
        }
    }
}

impl System {
    /// This host.
    pub(super) fn here() -> System {
        System { proc: "/proc".into(), sys: "/sys".into() }
    }

    /// What the kernel says of RDMA here.
    pub(super) fn rdma(&self) -> Rdma {
        Rdma::at(&self.proc, &self.sys)
    }

    /// The largest part of a PCI device's memory that can be addressed at once.
    pub(super) fn largest_bar_bytes(&self, pci_bus_id: &str) -> Option<u64> {
        let text = fs::read_to_string(self.pci(pci_bus_id).join("resource")).ok()?;
        largest_region_bytes(&text)
    }

    fn pci(&self, pci_bus_id: &str) -> PathBuf {
        self.sys.join("bus/pci/devices").join(pci_bus_id)
    }

    /// Between an RDMA device and a PCI device.
    pub(super) fn distance(&self, nic: &str, pci_bus_id: &str) -> Distance {
        let nic = self.sys.join("class/infiniband").join(nic).join("device");
        let device = self.pci(pci_bus_id);
        let (Ok(a), Ok(b)) = (nic.canonicalize(), device.canonicalize()) else {
            return Distance::Unknown;
        };
        // .../pci0000:3a/0000:3a:00.0/0000:3b:00.0: what is shared below the root bridge is a bridge or switch.
        let is_bridge = |part: &&std::ffi::OsStr| part.to_string_lossy().matches(':').count() == 2;
        let shared = common(&a, &b);
        if shared.iter().any(is_bridge) {
            return Distance::Switch;
        }
        let node = |path: &Path| {
            fs::read_to_string(path.join("numa_node"))
                .ok()
                .and_then(|t| t.trim().parse::<i32>().ok())
        };
        match (node(&a), node(&b)) {
            (Some(a), Some(b)) if a >= 0 && a == b => Distance::Node,
            (Some(a), Some(b)) if a >= 0 && b >= 0 => Distance::Far,
            _ => Distance::Unknown,
        }
    }

    /// Limits and settings that matter.
    pub(super) fn limits(&self) -> Vec<Line> {
        vec![self.shared_memory(), self.locked_memory(), self.peer_processes(), self.iommu()]
    }

    fn shared_memory(&self) -> Line {
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

    fn locked_memory(&self) -> Line {
        let what = "memory may be locked";
        let text = fs::read_to_string(self.proc.join("self/limits")).unwrap_or_default();
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

    fn peer_processes(&self) -> Line {
        let what = "processes may read each other's memory (CMA)";
        match fs::read_to_string(self.proc.join("sys/kernel/yama/ptrace_scope")) {
            Ok(text) if text.trim() == "0" => Line::yes(what, "ptrace_scope is 0"),
            Ok(text) => {
                Line::no(what, format!("kernel.yama.ptrace_scope is {}; 0 allows it", text.trim()))
            }
            Err(_) => {
                Line::yes(what, "no Yama here; a container's seccomp filter may still forbid it")
            }
        }
    }

    fn iommu(&self) -> Line {
        let what = "peers reach each other without an IOMMU between";
        let units = fs::read_dir(self.sys.join("class/iommu")).map_or(0, |entries| entries.count());
        let command_line = fs::read_to_string(self.proc.join("cmdline")).unwrap_or_default();
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
}

fn common<'a>(a: &'a Path, b: &Path) -> Vec<&'a std::ffi::OsStr> {
    let parts = a.iter().zip(b.iter());
    parts.take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetccl_runtime::gpu::Vendor;

    /// A folder that looks like the kernel's, with a NIC and two GPUs.
    fn made_up() -> System {
        let root = std::env::temp_dir().join(format!("hetccl-doctor-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let (proc, sys) = (root.join("proc"), root.join("sys"));
        let bridge = sys.join("devices/pci0000:3a/0000:3a:00.0");
        let devices = [
            (bridge.join("0000:3b:00.0"), "0"),
            (bridge.join("0000:3c:00.0"), "0"),
            (sys.join("devices/pci0000:80/0000:81:00.0"), "1"),
        ];
        for (place, node) in &devices {
            fs::create_dir_all(place).unwrap();
            fs::write(place.join("numa_node"), node).unwrap();
            let resource = "0x0000000090000000 0x0000000090ffffff 0x40200\n\
                            0x0000010000000000 0x00000103ffffffff 0x14220c\n0x0 0x0 0x0\n";
            fs::write(place.join("resource"), resource).unwrap();
        }
        let bus = sys.join("bus/pci/devices");
        fs::create_dir_all(&bus).unwrap();
        for (place, _) in &devices {
            std::os::unix::fs::symlink(place, bus.join(place.file_name().unwrap())).unwrap();
        }
        let nic = sys.join("class/infiniband/mlx5_0");
        fs::create_dir_all(&nic).unwrap();
        std::os::unix::fs::symlink(&devices[0].0, nic.join("device")).unwrap();
        fs::create_dir_all(sys.join("module/nvidia_peermem")).unwrap();
        fs::create_dir_all(proc.join("self")).unwrap();
        fs::write(
            proc.join("self/limits"),
            "Limit                     Soft Limit           Hard Limit           Units\n\
             Max locked memory         65536                65536                bytes\n",
        )
        .unwrap();
        System { proc, sys }
    }

    #[test]
    fn a_made_up_host_is_read_right() {
        let system = made_up();
        assert_eq!(system.rdma().devices(), ["mlx5_0"]);
        assert_eq!(system.largest_bar_bytes("0000:3c:00.0"), Some(16 << 30));
        assert_eq!(system.largest_bar_bytes("0000:99:00.0"), None);
        assert_eq!(system.distance("mlx5_0", "0000:3c:00.0"), Distance::Switch);
        assert_eq!(system.distance("mlx5_0", "0000:81:00.0"), Distance::Far);
        assert_eq!(system.distance("mlx5_0", "0000:99:00.0"), Distance::Unknown);
        assert_eq!(system.rdma().reaches(Vendor::Cuda), Ok("nvidia_peermem"));
        assert!(system.rdma().reaches(Vendor::Rocm).unwrap_err().contains("amdgpu"));
        let locked = system.locked_memory();
        assert!(!locked.yes && locked.why.contains("ulimit -l unlimited"), "{}", locked.why);
        assert!(system.iommu().yes);
    }
}
