//! A host as a tree: its NUMA nodes, and on each its CPUs, memory, GPUs and network cards.
//!
//! What is there comes from the kernel (`/sys`), so that a GPU without a working driver is seen too; numbers and names of GPUs
//! come from their drivers. Rates are in MB/s (10^6 bytes per second) in each direction.

use std::io::Write;
use std::path::{Path, PathBuf};

use hetccl_runtime::gpu::{DeviceInfo, Gpus};
use serde::Serialize;

use crate::sysfs::{self, Link, System};

/// PCI vendors that make GPUs.
const MAKERS: [(&str, &str); 3] = [("0x10de", "NVIDIA"), ("0x1002", "AMD"), ("0x8086", "Intel")];
/// PCI classes of GPUs: displays, and accelerators.
const GPU_CLASSES: [&str; 2] = ["0x03", "0x12"];

/// The NUMA nodes in order; last, without a number, what the firmware puts on none.
#[derive(Serialize)]
pub(crate) struct Tree(Vec<Node>);

#[derive(Default, Serialize)]
struct Node {
    numa_node: Option<u32>,
    /// As the kernel lists them: `0-15,32-47`.
    cpus: Option<String>,
    memory_bytes: Option<u64>,
    gpus: Vec<Gpu>,
    nics: Vec<Nic>,
}

#[derive(Serialize)]
struct Gpu {
    /// The driver's name and number of it; none where no driver has it.
    device: Option<String>,
    name: String,
    memory_bytes: Option<usize>,
    pci_bus_id: String,
    pcie: Option<Pcie>,
    /// The host's network cards, nearest first.
    nics: Vec<Near>,
}

#[derive(Serialize)]
struct Nic {
    name: String,
    /// The network interface of an RDMA device.
    interface: Option<String>,
    /// InfiniBand, or Ethernet with or without RDMA.
    kind: String,
    /// All ports together; none where the card does not say.
    mb_s: Option<u32>,
    state: String,
    pcie: Option<Pcie>,
}

/// A device's link as it is now, and what it can be. GPUs slow theirs down when idle.
#[derive(Clone, Copy, Serialize)]
struct Pcie {
    now: Link,
    most: Option<Link>,
}

#[derive(Serialize)]
struct Near {
    nic: String,
    distance: &'static str,
}

impl Tree {
    /// This host's. Asks the drivers.
    pub(crate) fn here() -> Tree {
        Tree::of(&System::here(), &devices())
    }

    /// The tree of a host with these devices of drivers.
    fn of(system: &System, devices: &[(String, DeviceInfo)]) -> Tree {
        let mut tree = Tree(numa_nodes(system));
        let cards = cards(system);
        let mut buses: Vec<String> = sysfs::names(&system.sys.join("bus/pci/devices"));
        buses.retain(|bus| maker(&system.pci(bus)).is_some());
        let hidden = devices.iter().map(|(_, info)| &info.pci_bus_id);
        buses.extend(hidden.filter(|&bus| !system.pci(bus).exists()).cloned().collect::<Vec<_>>());
        buses.dedup();
        for bus in buses {
            let folder = system.pci(&bus);
            let mut known = devices.iter().filter(|(_, info)| info.pci_bus_id == bus).peekable();
            let node = tree.node(sysfs::numa_node(&folder));
            if known.peek().is_none() {
                let name = format!("GPU of {}", maker(&folder).unwrap_or_default());
                node.gpus.push(gpu(&folder, &bus, &cards, None, name, None));
            }
            for (device, info) in known {
                let (name, memory) = (info.name.clone(), Some(info.memory_bytes));
                node.gpus.push(gpu(&folder, &bus, &cards, Some(device.clone()), name, memory));
            }
        }
        for (folder, card) in cards {
            tree.node(sysfs::numa_node(&folder)).nics.push(card);
        }
        tree
    }

    /// The node with a number, or the one for what is on none.
    fn node(&mut self, number: Option<u32>) -> &mut Node {
        let place = self.0.iter().position(|node| node.numa_node == number).unwrap_or_else(|| {
            self.0.push(Node { numa_node: number, ..Node::default() });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    /// Draws it.
    ///
    /// # Errors
    /// When the output can't be written.
    pub(crate) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "\nTopology")?;
        for node in &self.0 {
            writeln!(out, "  {}", node.words())?;
            let gpus = node.gpus.iter().map(Gpu::words);
            let lines: Vec<String> = gpus.chain(node.nics.iter().map(Nic::words)).collect();
            for (place, line) in lines.iter().enumerate() {
                let branch = if place + 1 == lines.len() { "└─" } else { "├─" };
                writeln!(out, "  {branch} {line}")?;
            }
        }
        Ok(())
    }
}

impl Node {
    fn words(&self) -> String {
        let Some(number) = self.numa_node else { return "on no NUMA node".into() };
        let cpus = self.cpus.as_ref().map(|cpus| format!(", CPUs {cpus}")).unwrap_or_default();
        let memory = self.memory_bytes.map(|bytes| format!(", {}", gib(bytes))).unwrap_or_default();
        format!("NUMA node {number}{cpus}{memory}")
    }
}

impl Gpu {
    fn words(&self) -> String {
        let device = self.device.as_ref().map(|device| format!("{device}: ")).unwrap_or_default();
        let memory = self.memory_bytes.map(|bytes| format!(", {}", gib(bytes as u64)));
        let pcie = self.pcie.map(|pcie| format!(", {}", pcie.words())).unwrap_or_default();
        let near: Vec<String> =
            self.nics.iter().map(|near| format!("{} {}", near.nic, near.distance)).collect();
        let nics = match near.is_empty() {
            true => String::new(),
            false => format!("; {}", near.join(", ")),
        };
        let unused = match self.device {
            Some(_) => "",
            None => "; no driver has it (`hetccl doctor` says why)",
        };
        format!(
            "{device}{}{}, PCI {}{pcie}{nics}{unused}",
            self.name,
            memory.unwrap_or_default(),
            self.pci_bus_id
        )
    }
}

impl Nic {
    fn words(&self) -> String {
        let interface = self.interface.as_ref().map(|name| format!(" ({name})"));
        let rate = self.mb_s.map(|rate| format!(", {} Gb/s", f64::from(rate) / 125.0));
        let pcie = self.pcie.map(|pcie| format!(", {}", pcie.words())).unwrap_or_default();
        format!(
            "{}{}: {}{}, {}{pcie}",
            self.name,
            interface.unwrap_or_default(),
            self.kind,
            rate.unwrap_or_default(),
            self.state
        )
    }
}

impl Pcie {
    /// What a PCI device's folder says.
    fn of(device: &Path) -> Option<Pcie> {
        let now = Link::of(device, "current")?;
        Some(Pcie { now, most: Link::of(device, "max") })
    }

    fn words(self) -> String {
        let Pcie { now, most } = self;
        let words = format!(
            "PCIe {} GT/s x{} ({:.1} GB/s)",
            now.gt_s,
            now.lanes,
            f64::from(now.mb_s) / 1000.0
        );
        match most.filter(|most| most.mb_s > now.mb_s) {
            Some(most) => format!("{words} now, {} GT/s x{} at most", most.gt_s, most.lanes),
            None => words,
        }
    }
}

/// The devices of all drivers: vendor and number, and what the driver says. One that does not answer is left to `hetccl doctor`.
fn devices() -> Vec<(String, DeviceInfo)> {
    let (gpus, _) = Gpus::discover(0);
    let all = gpus.drivers().iter().flat_map(|driver| {
        (0..driver.devices()).filter_map(|number| {
            let info = driver.info(number).ok()?;
            Some((format!("{} {number}", driver.vendor().name()), info))
        })
    });
    all.collect()
}

fn gpu(
    folder: &Path,
    bus: &str,
    cards: &[(PathBuf, Nic)],
    device: Option<String>,
    name: String,
    memory_bytes: Option<usize>,
) -> Gpu {
    let mut near: Vec<_> =
        cards.iter().map(|(card, nic)| (sysfs::distance(card, folder), &nic.name)).collect();
    near.sort();
    let nics = near
        .into_iter()
        .map(|(distance, nic)| Near { nic: nic.clone(), distance: distance.words() })
        .collect();
    Gpu { device, name, memory_bytes, pci_bus_id: bus.into(), pcie: Pcie::of(folder), nics }
}

/// Who makes a PCI device, if it is a GPU.
fn maker(device: &Path) -> Option<&'static str> {
    let class = sysfs::word(&device.join("class"))?;
    let vendor = sysfs::word(&device.join("vendor"))?;
    let (_, maker) = MAKERS.iter().find(|(id, _)| *id == vendor)?;
    GPU_CLASSES.iter().any(|start| class.starts_with(start)).then_some(*maker)
}

fn numa_nodes(system: &System) -> Vec<Node> {
    let folder = system.sys.join("devices/system/node");
    let names = sysfs::names(&folder);
    let mut nodes: Vec<Node> = names
        .iter()
        .filter_map(|name| {
            let number = name.strip_prefix("node")?.parse().ok()?;
            let own = folder.join(name);
            Some(Node {
                numa_node: Some(number),
                cpus: sysfs::word(&own.join("cpulist")).filter(|cpus| !cpus.is_empty()),
                memory_bytes: memory_bytes(&own.join("meminfo")),
                ..Node::default()
            })
        })
        .collect();
    nodes.sort_by_key(|node| node.numa_node);
    nodes
}

/// `Node 0 MemTotal:       24576 kB`.
fn memory_bytes(meminfo: &Path) -> Option<u64> {
    let text = sysfs::word(meminfo)?;
    let line = text.lines().find(|line| line.contains("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().rev().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

/// The network cards and their PCI devices' folders: RDMA devices, and the interfaces of other cards. Interfaces without a
/// device, such as bridges, are no cards.
fn cards(system: &System) -> Vec<(PathBuf, Nic)> {
    let rdma = system.rdma().devices().into_iter().map(|name| rdma_card(system, name));
    let mut cards: Vec<_> = rdma.collect();
    let taken: Vec<Option<String>> =
        cards.iter().map(|(_, card): &(_, Nic)| card.interface.clone()).collect();
    let interfaces = system.sys.join("class/net");
    for name in sysfs::names(&interfaces) {
        let own = interfaces.join(&name);
        let folder = own.join("device");
        if !folder.exists() || taken.iter().flatten().any(|taken| *taken == name) {
            continue;
        }
        // Mb/s; -1 or an error where the link is down or its rate unknown.
        let speed = sysfs::word(&own.join("speed")).and_then(|text| text.parse::<u32>().ok());
        let state = sysfs::word(&own.join("operstate")).unwrap_or_else(|| "state unknown".into());
        let card = Nic {
            name,
            interface: None,
            kind: "Ethernet".into(),
            mb_s: speed.map(|megabits| megabits / 8),
            state,
            pcie: Pcie::of(&folder),
        };
        cards.push((folder, card));
    }
    cards
}

fn rdma_card(system: &System, name: String) -> (PathBuf, Nic) {
    let own = system.rdma_device(&name);
    let folder = own.join("device");
    let ports = own.join("ports");
    let read = |port: &str, file: &str| sysfs::word(&ports.join(port).join(file));
    let numbers = sysfs::names(&ports);
    // `400 Gb/sec (4X NDR)`.
    let gigabits = numbers
        .iter()
        .filter_map(|port| read(port, "rate")?.split_whitespace().next()?.parse::<f64>().ok());
    let mb_s = (gigabits.sum::<f64>() * 125.0) as u32;
    let first = |file| numbers.first().and_then(|port| read(port, file));
    // `4: ACTIVE`.
    let state = first("state").and_then(|state| Some(state.split_once(": ")?.1.to_lowercase()));
    let layer = first("link_layer").unwrap_or_else(|| "RDMA".into());
    let card = Nic {
        interface: sysfs::names(&folder.join("net")).into_iter().next(),
        kind: if layer == "Ethernet" { "Ethernet with RDMA".into() } else { layer },
        mb_s: (mb_s > 0).then_some(mb_s),
        state: state.unwrap_or_else(|| "state unknown".into()),
        pcie: Pcie::of(&folder),
        name,
    };
    (folder, card)
}

fn gib(bytes: u64) -> String {
    format!("{:.0} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::tests::made_up;

    fn info(name: &str, bus: &str) -> DeviceInfo {
        DeviceInfo {
            name: name.into(),
            memory_bytes: 80 << 30,
            pci_bus_id: bus.into(),
            uuid: [0; 16],
        }
    }

    #[test]
    fn a_made_up_host_is_drawn_with_its_distances_and_rates() {
        let devices = [
            ("CUDA 0".to_owned(), info("H100", "0000:3c:00.0")),
            ("ROCm 0".into(), info("W1", "emulated")),
        ];
        let tree = Tree::of(&made_up("tree"), &devices);
        let mut text = Vec::new();
        tree.print(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let expected = "
Topology
  NUMA node 0, CPUs 0-15, 125 GiB
  ├─ CUDA 0: H100, 80 GiB, PCI 0000:3c:00.0, PCIe 2.5 GT/s x16 (4.0 GB/s) now, 32 GT/s x16 at most; mlx5_0 behind one PCIe bridge, eth0 place unknown
  └─ mlx5_0 (ib0): InfiniBand, 400 Gb/s, active, PCIe 2.5 GT/s x16 (4.0 GB/s) now, 32 GT/s x16 at most
  NUMA node 1, CPUs 16-31, 125 GiB
  └─ GPU of AMD, PCI 0000:81:00.0, PCIe 2.5 GT/s x16 (4.0 GB/s) now, 32 GT/s x16 at most; mlx5_0 on another NUMA node, eth0 place unknown; no driver has it (`hetccl doctor` says why)
  on no NUMA node
  ├─ ROCm 0: W1, 80 GiB, PCI emulated; eth0 place unknown, mlx5_0 place unknown
  └─ eth0: Ethernet, 25 Gb/s, up, PCIe 2.5 GT/s x16 (4.0 GB/s) now, 32 GT/s x16 at most
";
        assert_eq!(text, expected);
        let json = serde_json::to_value(&tree).unwrap();
        assert_eq!(json[0]["gpus"][0]["nics"][0]["nic"], "mlx5_0");
        assert_eq!(json[0]["nics"][0]["mb_s"], 50_000);
    }

    #[test]
    fn a_host_without_the_kernels_files_is_an_empty_tree() {
        let nowhere = System { proc: "/nonexistent".into(), sys: "/nonexistent".into() };
        assert!(Tree::of(&nowhere, &[]).0.is_empty());
    }
}
