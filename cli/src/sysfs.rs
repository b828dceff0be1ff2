//! What the kernel says of this host, read from `/proc` and `/sys`.

use std::fs;
use std::path::{Path, PathBuf};

use hetccl_runtime::Rdma;
use hetccl_runtime::rdma::largest_region_bytes;
use serde::Serialize;

/// Where the kernel's files are.
pub(crate) struct System {
    pub(crate) proc: PathBuf,
    pub(crate) sys: PathBuf,
}

/// How far two PCI devices are from each other, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Distance {
    Switch,
    Node,
    Far,
    Unknown,
}

impl Distance {
    pub(crate) const fn words(self) -> &'static str {
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
    pub(crate) fn here() -> System {
        System { proc: "/proc".into(), sys: "/sys".into() }
    }

    /// What the kernel says of RDMA here.
    pub(crate) fn rdma(&self) -> Rdma {
        Rdma::at(&self.proc, &self.sys)
    }

    /// The largest part of a PCI device's memory that can be addressed at once.
    pub(crate) fn largest_bar_bytes(&self, pci_bus_id: &str) -> Option<u64> {
        let text = fs::read_to_string(self.pci(pci_bus_id).join("resource")).ok()?;
        largest_region_bytes(&text)
    }

    /// The folder of a PCI device.
    pub(crate) fn pci(&self, pci_bus_id: &str) -> PathBuf {
        self.sys.join("bus/pci/devices").join(pci_bus_id)
    }

    /// The folder of an RDMA device, and of the PCI device that it is a function of.
    pub(crate) fn rdma_device(&self, nic: &str) -> PathBuf {
        self.sys.join("class/infiniband").join(nic)
    }
}

/// Between two PCI devices' folders.
pub(crate) fn distance(a: &Path, b: &Path) -> Distance {
    let (Ok(a), Ok(b)) = (a.canonicalize(), b.canonicalize()) else {
        return Distance::Unknown;
    };
    // .../pci0000:3a/0000:3a:00.0/0000:3b:00.0: what is shared below the root bridge is a bridge or switch.
    let is_bridge = |part: &&std::ffi::OsStr| part.to_string_lossy().matches(':').count() == 2;
    if common(&a, &b).iter().any(is_bridge) {
        return Distance::Switch;
    }
    match (numa_node(&a), numa_node(&b)) {
        (Some(a), Some(b)) if a == b => Distance::Node,
        (Some(_), Some(_)) => Distance::Far,
        _ => Distance::Unknown,
    }
}

/// The NUMA node of a PCI device's folder; none where the firmware names none.
pub(crate) fn numa_node(device: &Path) -> Option<u32> {
    word(&device.join("numa_node"))?.parse().ok()
}

/// A file's text without white space around it.
pub(crate) fn word(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

/// The names in a folder, in order; none where it can't be read.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// A PCIe link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Link {
    /// 10^9 transfers per second and lane.
    pub(crate) gt_s: f64,
    pub(crate) lanes: u32,
    /// 10^6 bytes per second in each direction, before packets' headers.
    pub(crate) mb_s: u32,
}

impl Link {
    /// The link that a PCI device's folder says it has, at `current` or at `max`.
    pub(crate) fn of(device: &Path, which: &str) -> Option<Link> {
        let speed = word(&device.join(format!("{which}_link_speed")))?;
        let gt_s: f64 = speed.split_whitespace().next()?.parse().ok()?;
        let lanes: u32 = word(&device.join(format!("{which}_link_width")))?.parse().ok()?;
        // What an emulated bus says: 0 lanes, 255 lanes or an unknown speed.
        (gt_s > 0.0 && (1..=32).contains(&lanes)).then(|| Link::new(gt_s, lanes))
    }

    /// Bits per transfer are 8 of 10 up to 5 GT/s, 128 of 130 up to 32 GT/s, and 242 of 256 in flits from there on (PCI
    /// Express Base Specification 6.0, 4.2).
    fn new(gt_s: f64, lanes: u32) -> Link {
        let share = match gt_s {
            speed if speed <= 5.0 => 0.8,
            speed if speed <= 32.0 => 128.0 / 130.0,
            _ => 242.0 / 256.0,
        };
        Link { gt_s, lanes, mb_s: (gt_s * 1000.0 / 8.0 * share * f64::from(lanes)) as u32 }
    }
}

fn common<'a>(a: &'a Path, b: &Path) -> Vec<&'a std::ffi::OsStr> {
    let parts = a.iter().zip(b.iter());
    parts.take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use hetccl_runtime::gpu::Vendor;

    /// A folder that looks like the kernel's, with a NIC, an Ethernet card and two GPUs on two NUMA nodes.
    pub(crate) fn made_up(name: &str) -> System {
        let root = std::env::temp_dir().join(format!("hetccl-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let write = |file: PathBuf, text: &str| {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let (proc, sys) = (root.join("proc"), root.join("sys"));
        let bridge = sys.join("devices/pci0000:3a/0000:3a:00.0");
        let far = sys.join("devices/pci0000:80");
        // Place, NUMA node, vendor, class.
        let devices = [
            (bridge.join("0000:3b:00.0"), "0", "0x15b3", "0x020700"),
            (bridge.join("0000:3c:00.0"), "0", "0x10de", "0x030200"),
            (far.join("0000:81:00.0"), "1", "0x1002", "0x038000"),
            (far.join("0000:82:00.0"), "-1", "0x8086", "0x020000"),
        ];
        for (place, node, vendor, class) in &devices {
            write(place.join("numa_node"), node);
            write(place.join("vendor"), vendor);
            write(place.join("class"), class);
            let resource = "0x0000000090000000 0x0000000090ffffff 0x40200\n\
                            0x0000010000000000 0x00000103ffffffff 0x14220c\n0x0 0x0 0x0\n";
            write(place.join("resource"), resource);
            for (file, text) in [("speed", "32.0 GT/s PCIe\n"), ("width", "16\n")] {
                write(place.join(format!("max_link_{file}")), text);
            }
            write(place.join("current_link_speed"), "2.5 GT/s PCIe\n");
            write(place.join("current_link_width"), "16\n");
        }
        let bus = sys.join("bus/pci/devices");
        fs::create_dir_all(&bus).unwrap();
        for (place, ..) in &devices {
            std::os::unix::fs::symlink(place, bus.join(place.file_name().unwrap())).unwrap();
        }
        let nic = sys.join("class/infiniband/mlx5_0");
        write(nic.join("ports/1/rate"), "400 Gb/sec (4X NDR)\n");
        write(nic.join("ports/1/state"), "4: ACTIVE\n");
        write(nic.join("ports/1/link_layer"), "InfiniBand\n");
        fs::create_dir_all(devices[0].0.join("net/ib0")).unwrap();
        for (class, device) in [("net/ib0", &devices[0].0), ("net/eth0", &devices[3].0)] {
            write(sys.join("class").join(class).join("operstate"), "up\n");
            write(sys.join("class").join(class).join("speed"), "25000\n");
            std::os::unix::fs::symlink(device, sys.join("class").join(class).join("device"))
                .unwrap();
        }
        write(sys.join("class/net/lo/operstate"), "unknown\n");
        std::os::unix::fs::symlink(&devices[0].0, nic.join("device")).unwrap();
        for (node, cpus) in [("node0", "0-15\n"), ("node1", "16-31\n")] {
            write(sys.join("devices/system/node").join(node).join("cpulist"), cpus);
            let memory = "Node 0 MemTotal:       131072000 kB\nNode 0 MemFree: 1 kB\n";
            write(sys.join("devices/system/node").join(node).join("meminfo"), memory);
        }
        fs::create_dir_all(sys.join("module/nvidia_peermem")).unwrap();
        fs::create_dir_all(&proc).unwrap();
        System { proc, sys }
    }

    #[test]
    fn a_made_up_host_is_read_right() {
        let system = made_up("sysfs");
        assert_eq!(system.rdma().devices(), ["mlx5_0"]);
        assert_eq!(system.largest_bar_bytes("0000:3c:00.0"), Some(16 << 30));
        assert_eq!(system.largest_bar_bytes("0000:99:00.0"), None);
        let from_nic =
            |to: &str| distance(&system.rdma_device("mlx5_0").join("device"), &system.pci(to));
        assert_eq!(from_nic("0000:3c:00.0"), Distance::Switch);
        assert_eq!(from_nic("0000:81:00.0"), Distance::Far);
        assert_eq!(from_nic("0000:82:00.0"), Distance::Unknown);
        assert_eq!(from_nic("0000:99:00.0"), Distance::Unknown);
        assert_eq!(system.rdma().reaches(Vendor::Cuda), Ok("nvidia_peermem"));
        assert!(system.rdma().reaches(Vendor::Rocm).unwrap_err().contains("amdgpu"));
    }

    #[test]
    fn links_have_the_rates_of_the_specification() {
        let rate = |gt_s, lanes| Link::new(gt_s, lanes).mb_s;
        assert_eq!(rate(2.5, 1), 250);
        assert_eq!(rate(8.0, 16), 15_753);
        assert_eq!(rate(32.0, 16), 63_015);
        assert_eq!(rate(64.0, 16), 121_000);
        let system = made_up("links");
        let gpu = system.pci("0000:3c:00.0");
        assert_eq!(Link::of(&gpu, "current").map(|link| link.gt_s), Some(2.5));
        assert_eq!(Link::of(&gpu, "max"), Some(Link::new(32.0, 16)));
        assert_eq!(Link::of(&system.pci("0000:99:00.0"), "max"), None);
    }
}
