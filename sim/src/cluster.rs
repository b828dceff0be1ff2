//! Cluster files: a machine described in TOML.
//!
//! ```toml
//! name = "two and two"
//! [network]
//! latency_us = 2.0        # last byte out to last byte in, between nodes
//! overhead_us = 0.4       # what a message takes of its sender, and of its receiver
//! eager_kib = 8           # longer messages wait for their receiver
//! [[node]]
//! name = "nvidia"
//! count = 2
//! host_gb_s = 80          # host memory
//! latency_us = 1.5        # inside the node
//! nics_gb_s = [12.3]      # one number a card, each way
//! [[node.device]]
//! vendor = "nvidia"       # nvidia, amd, intel, host
//! count = 4
//! pcie_gb_s = 12.5        # each way
//! fabric_gb_s = 0         # NVLink or xGMI, all links together, each way; left out: none
//! memory_gb_s = 830       # what the device's memory reads and writes
//! launch_us = 2.5         # a kernel's launch
//! nics = [0]              # the devices' cards, in turn
//! ```
//!
//! GB are 10^9 bytes. A reduction reads two operands and writes one result, so it runs at a third of the memory's rate,
//! a copy at half.

use std::path::{Path, PathBuf};

use hetccl_core::topology::{self, Network, NodeKind, Place, Topology, Vendor};
use serde::Deserialize;

/// A described machine.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// The machine, with one rank for each device's `ranks`, node by node.
    pub topology: Topology,
    /// The digest of the file's content.
    pub digest: u64,
    /// The rate at which one process reduces in host memory, in MB/s, for comparisons that do so.
    pub host_reduce_mb_s: u32,
}

/// A cluster file that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// It can't be read.
    #[error("cannot read the cluster file {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Its text is wrong; the message has line, field and what is allowed.
    #[error("{path}: {message}")]
    Wrong {
        /// The file, or what the text was called.
        path: PathBuf,
        /// What is wrong where.
        message: String,
    },
}

impl Cluster {
    /// Reads a file.
    ///
    /// # Errors
    /// When it can't be read or says what can't be.
    pub fn load(path: &Path) -> Result<Cluster, ClusterError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ClusterError::Unreadable { path: path.to_owned(), source })?;
        Cluster::parse(&text, path)
    }

    /// Reads a file's text; `path` is what errors call it.
    ///
    /// # Errors
    /// When it says what can't be.
    pub fn parse(text: &str, path: &Path) -> Result<Cluster, ClusterError> {
        let wrong = |message: String| ClusterError::Wrong { path: path.to_owned(), message };
        let file: File =
            toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
        let topology = file.topology().map_err(|(at, what)| {
            let line = text[..at.min(text.len())].lines().count().max(1);
            wrong(format!("line {line}: {what}"))
        })?;
        topology.validate().map_err(|error| wrong(error.to_string()))?;
        Ok(Cluster {
            name: file.name,
            topology,
            digest: topology::digest_of(text.as_bytes()),
            host_reduce_mb_s: file.host_reduce_gb_s.mb_s(),
        })
    }
}

/// A number of GB/s.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
struct Rate(f64);

impl Rate {
    fn mb_s(self) -> u32 {
        (self.0 * 1e3).round() as u32
    }
}

impl TryFrom<f64> for Rate {
    type Error = String;

    fn try_from(rate: f64) -> Result<Rate, String> {
        if (0.001..=1e6).contains(&rate) {
            return Ok(Rate(rate));
        }
        Err(format!("a rate of {rate} GB/s; allowed are 0.001 to 1000000"))
    }
}

/// A number of microseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
struct Time(f64);

impl Time {
    fn ns(self) -> u32 {
        (self.0 * 1e3).round() as u32
    }
}

impl TryFrom<f64> for Time {
    type Error = String;

    fn try_from(time: f64) -> Result<Time, String> {
        if (0.0..=1e6).contains(&time) {
            return Ok(Time(time));
        }
        Err(format!("a time of {time} us; allowed are 0 to 1000000"))
    }
}

/// How many of something.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "i64")]
struct Count(u16);

impl TryFrom<i64> for Count {
    type Error = String;

    fn try_from(count: i64) -> Result<Count, String> {
        match u16::try_from(count) {
            Ok(count) if count > 0 => Ok(Count(count)),
            _ => Err(format!("a count of {count}; allowed are 1 to 65535")),
        }
    }
}

fn one() -> Count {
    Count(1)
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum VendorName {
    Nvidia,
    Amd,
    Intel,
    Host,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    /// Where the numbers come from; for readers.
    #[serde(default, rename = "source")]
    _source: String,
    #[serde(default = "host_reduce")]
    host_reduce_gb_s: Rate,
    network: NetworkFile,
    node: Vec<NodeFile>,
}

fn host_reduce() -> Rate {
    Rate(10.0)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkFile {
    latency_us: Time,
    overhead_us: Time,
    eager_kib: u16,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFile {
    name: String,
    #[serde(default = "one")]
    count: Count,
    host_gb_s: Rate,
    latency_us: Time,
    #[serde(default)]
    cross_vendor_peer: bool,
    #[serde(default)]
    nics_gb_s: Vec<Rate>,
    device: Vec<DeviceFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceFile {
    vendor: VendorName,
    #[serde(default = "one")]
    count: Count,
    #[serde(default = "one")]
    ranks: Count,
    pcie_gb_s: Rate,
    #[serde(default)]
    fabric_gb_s: f64,
    memory_gb_s: Rate,
    launch_us: Time,
    #[serde(default)]
    nics: Vec<toml::Spanned<u16>>,
    #[serde(default = "yes")]
    gpu_direct: bool,
}

fn yes() -> bool {
    true
}

/// An error's place in the text, and what it says.
type At = (usize, String);

impl File {
    fn topology(&self) -> Result<Topology, At> {
        let network = Network {
            latency_ns: self.network.latency_us.ns(),
            overhead_ns: self.network.overhead_us.ns(),
            eager_bytes: u32::from(self.network.eager_kib) << 10,
        };
        let mut topology = Topology { network, ..Topology::default() };
        for (kind, node) in self.node.iter().enumerate() {
            let (description, ranks) = node.kind()?;
            topology.kinds.push(description);
            for _ in 0..node.count.0 {
                let number = topology.nodes.len() as u32;
                topology.nodes.push(kind as u16);
                for (device, &ranks) in ranks.iter().enumerate() {
                    let place = Place { node: number, device: device as u16 };
                    topology.places.extend((0..ranks).map(|_| place));
                }
            }
        }
        Ok(topology)
    }
}

impl NodeFile {
    /// The node's description, and each device's ranks.
    fn kind(&self) -> Result<(NodeKind, Vec<u16>), At> {
        let mut kind = NodeKind {
            name: self.name.clone(),
            nics: self.nics_gb_s.iter().map(|rate| rate.mb_s()).collect(),
            devices: Vec::new(),
            host_mb_s: self.host_gb_s.mb_s(),
            latency_ns: self.latency_us.ns(),
            cross_vendor_peer: self.cross_vendor_peer,
        };
        let mut ranks = Vec::new();
        for device in &self.device {
            let cards = kind.nics.len();
            if let Some(nic) = device.nics.iter().find(|nic| usize::from(*nic.get_ref()) >= cards) {
                let (name, number) = (&self.name, nic.get_ref());
                let what = format!(
                    "nics: node {name} has {cards} cards, so 0 to less than that is allowed, not {number}"
                );
                return Err((nic.span().start, what));
            }
            for i in 0..usize::from(device.count.0) {
                let nic = match device.nics.len() {
                    0 => 0,
                    n => *device.nics[i % n].get_ref(),
                };
                kind.devices.push(device.device(nic));
                ranks.push(device.ranks.0);
            }
        }
        Ok((kind, ranks))
    }
}

impl DeviceFile {
    fn device(&self, nic: u16) -> topology::Device {
        topology::Device {
            vendor: match self.vendor {
                VendorName::Nvidia => Vendor::Nvidia,
                VendorName::Amd => Vendor::Amd,
                VendorName::Intel => Vendor::Intel,
                VendorName::Host => Vendor::Host,
            },
            pcie_mb_s: self.pcie_gb_s.mb_s(),
            fabric_mb_s: (self.fabric_gb_s * 1e3).round() as u32,
            reduce_mb_s: (self.memory_gb_s.mb_s() / 3).max(1),
            copy_mb_s: (self.memory_gb_s.mb_s() / 2).max(1),
            launch_ns: self.launch_us.ns(),
            nic,
            gpu_direct: self.gpu_direct,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = include_str!("../../clusters/hetccl-paper.toml");

    fn error(text: &str) -> String {
        Cluster::parse(text, Path::new("c.toml")).unwrap_err().to_string()
    }

    #[test]
    fn the_published_testbed_has_sixteen_ranks() {
        let cluster = Cluster::parse(GOOD, Path::new("c.toml")).unwrap();
        assert_eq!(cluster.topology.len(), 16);
        assert_eq!(cluster.topology.device(8).vendor, Vendor::Amd);
        let changed = Cluster::parse(&format!("{GOOD}\n"), Path::new("c.toml")).unwrap();
        assert_ne!(cluster.digest, changed.digest);
    }

    #[test]
    fn errors_name_line_field_and_what_is_allowed() {
        let bad = error(&GOOD.replace("vendor = \"amd\"", "vendor = \"adm\""));
        assert!(bad.contains("vendor") && bad.contains("line") && bad.contains("`amd`"), "{bad}");
        let bad = error(&GOOD.replace("overhead_us", "overhead"));
        assert!(bad.contains("unknown field `overhead`") && bad.contains("overhead_us"), "{bad}");
        let bad = error(&GOOD.replace("count = 4", "count = 0"));
        assert!(bad.contains("allowed are 1 to 65535") && bad.contains("line"), "{bad}");
        let bad = error(&GOOD.replacen("nics = [0]", "nics = [3]", 1));
        assert!(bad.contains("line ") && bad.contains("has 1 cards"), "{bad}");
        let bad = error("name = 3");
        assert!(bad.contains("line 1"), "{bad}");
        let missing = Cluster::load(Path::new("/nowhere/c.toml")).unwrap_err().to_string();
        assert!(missing.contains("/nowhere/c.toml"), "{missing}");
    }
}
