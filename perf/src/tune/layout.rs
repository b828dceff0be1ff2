//! Which ranks share nodes and devices.

use anyhow::{Context, Result};

use crate::library::mpi::Mpi;
use crate::memory::{Memory, Place};

/// Bytes of an identity on its way to the other ranks.
const BYTES: usize = 128;
/// Of those, what is the host's name.
const HOST_BYTES: usize = 72;

/// Where a rank is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    host: String,
    vendor: String,
    /// The PCI address; of ranks that work on host memory, something of their own.
    device: String,
}

/// The job: its nodes in the order of their first ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) host: String,
    /// In the order of their first ranks.
    pub(super) devices: Vec<Device>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    /// As cluster files name it.
    pub(super) vendor: String,
    pci_bus_id: String,
    pub(super) ranks: Vec<usize>,
}

impl Identity {
    /// This rank's.
    pub(super) fn new(memory: Memory, place: &Place, rank: usize) -> Result<Identity> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
            .context("reading this host's name")?;
        let mut host = host.trim().to_owned();
        host.truncate(HOST_BYTES - 1);
        let device = place.pci_bus_id()?.unwrap_or_else(|| format!("host rank {rank}"));
        let vendor = match memory {
            Memory::Host => "host",
            Memory::Cuda => "nvidia",
            Memory::Rocm => "amd",
        };
        Ok(Identity { host, vendor: vendor.into(), device })
    }

    /// All ranks'.
    pub(super) fn exchange(&self, mpi: &Mpi) -> Result<Vec<Identity>> {
        Ok(mpi.gather(&self.encode())?.chunks(BYTES).map(Identity::decode).collect())
    }

    fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let parts = [(0, &self.host), (HOST_BYTES, &self.vendor), (HOST_BYTES + 16, &self.device)];
        for (start, text) in parts {
            bytes[start..start + text.len()].copy_from_slice(text.as_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Identity {
        let text = |range: std::ops::Range<usize>| {
            let text = String::from_utf8_lossy(&bytes[range]);
            text.trim_end_matches('\0').to_owned()
        };
        Identity {
            host: text(0..HOST_BYTES),
            vendor: text(HOST_BYTES..HOST_BYTES + 16),
            device: text(HOST_BYTES + 16..BYTES),
        }
    }
}

impl Layout {
    /// Of ranks with these identities.
    pub(super) fn new(ranks: &[Identity]) -> Layout {
        let mut layout = Layout { nodes: Vec::new() };
        for (rank, identity) in ranks.iter().enumerate() {
            let nodes = &mut layout.nodes;
            let known = nodes.iter().position(|node| node.host == identity.host);
            let node = known.unwrap_or_else(|| {
                nodes.push(Node { host: identity.host.clone(), devices: Vec::new() });
                nodes.len() - 1
            });
            let devices = &mut nodes[node].devices;
            let same = |device: &&mut Device| {
                device.vendor == identity.vendor && device.pci_bus_id == identity.device
            };
            match devices.iter_mut().find(same) {
                Some(device) => device.ranks.push(rank),
                None => devices.push(Device {
                    vendor: identity.vendor.clone(),
                    pci_bus_id: identity.device.clone(),
                    ranks: vec![rank],
                }),
            }
        }
        layout
    }

    /// A rank's node and device, by their places.
    pub(super) fn place(&self, rank: usize) -> (usize, usize) {
        let devices = self.nodes.iter().enumerate().flat_map(|(i, node)| {
            node.devices.iter().enumerate().map(move |(j, device)| ((i, j), device))
        });
        let mut holding = devices.filter(|(_, device)| device.ranks.contains(&rank));
        holding.next().map_or((0, 0), |(place, _)| place)
    }
}

impl Node {
    /// Its ranks, the first of each device first.
    pub(super) fn ranks(&self) -> Vec<usize> {
        let most = self.devices.iter().map(|device| device.ranks.len()).max().unwrap_or(0);
        (0..most)
            .flat_map(|turn| self.devices.iter().filter_map(move |d| d.ranks.get(turn).copied()))
            .collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn identity(host: &str, vendor: &str, device: &str) -> Identity {
        Identity { host: host.into(), vendor: vendor.into(), device: device.into() }
    }

    #[test]
    fn ranks_of_one_device_are_found_together() {
        let all = [
            identity("a", "nvidia", "3b"),
            identity("b", "amd", "3b"),
            identity("a", "nvidia", "3b"),
            identity("a", "nvidia", "5e"),
            identity("a", "host", "host rank 4"),
        ];
        let layout = Layout::new(&all);
        assert_eq!(layout.nodes.len(), 2);
        assert_eq!(layout.nodes[0].ranks(), [0, 3, 4, 2]);
        assert_eq!((layout.place(2), layout.place(3), layout.place(1)), ((0, 0), (0, 1), (1, 0)));
        let long = Identity { host: "h".repeat(HOST_BYTES - 1), ..all[0].clone() };
        for identity in all.iter().chain([&long]) {
            assert_eq!(&Identity::decode(&identity.encode()), identity);
        }
    }
}
