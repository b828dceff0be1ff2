//! What was measured, as a cluster file, as JSON, and as a table for people.
//!
//! Nodes with the same devices and ranks share a description; each of its numbers is the median of theirs.

use std::fmt::Write;

use serde::Serialize;

use super::layout::{Layout, Node};
use super::links::{DeviceRates, Measured, NetworkRates};

/// What the file says where nothing could be measured: on one node, or with one rank on each.
const NETWORK_LATENCY_US: f64 = 5.0;
const INSIDE_LATENCY_US: f64 = 1.0;
/// UCX's usual limit for eager messages over a network.
const EAGER_KIB: u32 = 8;
/// Device memory that travels this well beside host memory is read by the cards themselves.
const DIRECT_SHARE: f64 = 0.8;

/// Devices beside each other that look alike.
struct Alike {
    vendor: String,
    count: usize,
    ranks: usize,
    rates: Vec<DeviceRates>,
}

/// The cluster file's text.
pub(super) fn text(layout: &Layout, measured: &Measured, through: &str) -> String {
    let mut out = String::new();
    let ranks: usize = layout.nodes.iter().map(|node| node.ranks().len()).sum();
    let hosts: Vec<&str> = layout.nodes.iter().map(|node| node.host.as_str()).collect();
    let networks: Vec<NetworkRates> = measured.network.iter().flatten().copied().collect();
    let overhead = measured.overhead_us;
    let latency = |one_way: f64| (one_way - 2.0 * overhead).max(0.1);
    line(&mut out, "# Measured by hetccl tune. Rates in GB/s, 10^9 bytes per second, one way.");
    let name = format!("{ranks} ranks on {}", names(&hosts));
    line(&mut out, &format!("name = {}", quoted(&name)));
    let version = env!("CARGO_PKG_VERSION");
    line(&mut out, &format!("source = {}", quoted(&format!("hetccl {version} tune, {through}"))));
    line(&mut out, "\n[network]");
    match networks.is_empty() {
        true => {
            line(&mut out, &format!("latency_us = {NETWORK_LATENCY_US:.1} # assumed: one node"));
        }
        false => {
            let one_way = median(networks.iter().map(|network| network.one_way_us));
            line(&mut out, &format!("latency_us = {}", number(latency(one_way))));
        }
    }
    line(&mut out, &format!("overhead_us = {}", number(overhead)));
    line(&mut out, &format!("eager_kib = {EAGER_KIB} # assumed"));
    for kind in kinds(layout) {
        node(&mut out, layout, measured, &kind, latency);
    }
    out
}

/// A description of nodes that look alike, by their places.
fn node(
    out: &mut String,
    layout: &Layout,
    measured: &Measured,
    places: &[usize],
    latency: impl Fn(f64) -> f64,
) {
    let networks: Vec<NetworkRates> = places.iter().filter_map(|&i| measured.network[i]).collect();
    line(out, "\n[[node]]");
    line(out, &format!("name = {}", quoted(&layout.nodes[places[0]].host)));
    line(out, &format!("count = {}", places.len()));
    let host = median(places.iter().map(|&i| measured.host_gb_s[i]));
    line(out, &format!("host_gb_s = {}", number(host)));
    let inside: Vec<f64> = places.iter().filter_map(|&i| measured.inside_us[i]).collect();
    match inside.is_empty() {
        true => {
            line(out, &format!("latency_us = {INSIDE_LATENCY_US:.1} # assumed: one rank a node"))
        }
        false => {
            let one_way = latency(median(inside.into_iter()));
            line(out, &format!("latency_us = {}", number(one_way)));
        }
    }
    if !networks.is_empty() {
        let rate = median(networks.iter().map(|network| network.node_gb_s));
        line(out, &format!("nics_gb_s = [{}] # all cards together", number(rate)));
    }
    let direct = networks.iter().all(|n| n.own_gb_s >= DIRECT_SHARE * n.node_gb_s);
    for alike in alike(layout, measured, places) {
        let of = |field: fn(&DeviceRates) -> f64| number(median(alike.rates.iter().map(field)));
        line(out, "\n[[node.device]]");
        line(out, &format!("vendor = {}", quoted(&alike.vendor)));
        line(out, &format!("count = {}", alike.count));
        if alike.ranks > 1 {
            line(out, &format!("ranks = {}", alike.ranks));
        }
        line(out, &format!("pcie_gb_s = {}", of(|rates| rates.pcie_gb_s)));
        line(out, &format!("memory_gb_s = {}", of(|rates| rates.memory_gb_s)));
        line(out, &format!("launch_us = {}", of(|rates| rates.launch_us)));
        if alike.vendor != "host" {
            line(out, "# fabric_gb_s = 0 # NVLink or xGMI, all links together: not measured");
            if !direct {
                line(out, "gpu_direct = false");
            }
        }
        if !networks.is_empty() {
            line(out, "nics = [0]");
        }
    }
}

/// Places of nodes that look alike, in the order of the first of each.
fn kinds(layout: &Layout) -> Vec<Vec<usize>> {
    let mut kinds: Vec<Vec<usize>> = Vec::new();
    for (place, node) in layout.nodes.iter().enumerate() {
        match kinds.iter_mut().find(|kind| shape(&layout.nodes[kind[0]]) == shape(node)) {
            Some(kind) => kind.push(place),
            None => kinds.push(vec![place]),
        }
    }
    kinds
}

fn shape(node: &Node) -> Vec<(&str, usize)> {
    node.devices.iter().map(|device| (device.vendor.as_str(), device.ranks.len())).collect()
}

fn alike(layout: &Layout, measured: &Measured, places: &[usize]) -> Vec<Alike> {
    let mut all: Vec<Alike> = Vec::new();
    for (device, (vendor, ranks)) in shape(&layout.nodes[places[0]]).into_iter().enumerate() {
        let rates = places.iter().map(|&node| measured.devices[node][device]);
        match all.last_mut().filter(|last| last.vendor == vendor && last.ranks == ranks) {
            Some(last) => {
                last.count += 1;
                last.rates.extend(rates);
            }
            None => {
                let (vendor, rates) = (vendor.to_owned(), rates.collect());
                all.push(Alike { vendor, count: 1, ranks, rates });
            }
        }
    }
    all
}

/// For people.
pub(super) fn table(layout: &Layout, measured: &Measured) -> String {
    let mut out = String::new();
    for (i, node) in layout.nodes.iter().enumerate() {
        let inside = measured.inside_us[i].map(|time| format!(", {} us inside", number(time)));
        let host = number(measured.host_gb_s[i]);
        line(
            &mut out,
            &format!("{}: host memory {host} GB/s{}", node.host, inside.unwrap_or_default()),
        );
        for (device, rates) in node.devices.iter().zip(&measured.devices[i]) {
            let ranks: Vec<String> = device.ranks.iter().map(usize::to_string).collect();
            line(
                &mut out,
                &format!(
                    "  {:<8} memory {:>8} GB/s, link {:>8} GB/s, launch {:>6} us   rank {}",
                    device.vendor,
                    number(rates.memory_gb_s),
                    number(rates.pcie_gb_s),
                    number(rates.launch_us),
                    ranks.join(", ")
                ),
            );
        }
        if let Some(network) = &measured.network[i] {
            line(
                &mut out,
                &format!(
                    "  network  {} us, {} GB/s with host memory, {} GB/s with the ranks' own",
                    number(network.one_way_us),
                    number(network.node_gb_s),
                    number(network.own_gb_s)
                ),
            );
        }
    }
    line(&mut out, &format!("a message takes {} us of its sender", number(measured.overhead_us)));
    out
}

/// For programs.
pub(super) fn report(layout: &Layout, measured: &Measured, through: &str) -> impl Serialize {
    let hosts: Vec<&str> = layout.nodes.iter().map(|node| node.host.as_str()).collect();
    serde_json::json!({ "hosts": hosts, "through": through, "measured": measured })
}

fn line(out: &mut String, text: &str) {
    // Writing to a string can't fail.
    let _ = writeln!(out, "{text}");
}

/// The first few of them.
fn names(hosts: &[&str]) -> String {
    match hosts {
        [first, second, .., last] => format!("{first}, {second} ... {last}"),
        few => few.join(", "),
    }
}

/// A TOML string.
fn quoted(text: &str) -> String {
    let plain = text.chars().filter(|c| !c.is_control());
    let escaped: String = plain
        .flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            c => vec![c],
        })
        .collect();
    format!("\"{escaped}\"")
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// With three digits that count, and within what cluster files take.
fn number(value: f64) -> String {
    let value = value.clamp(0.0, 1e6);
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::tests::identity;
    use super::*;

    #[test]
    fn nodes_and_devices_that_look_alike_are_written_once() {
        let mut ranks = Vec::new();
        for host in ["a", "b"] {
            for device in ["1", "2"] {
                ranks.push(identity(host, "nvidia", device));
            }
        }
        ranks.push(identity("c\"", "amd", "1"));
        ranks.push(identity("c\"", "amd", "1"));
        let layout = Layout::new(&ranks);
        let rates = |gb_s| DeviceRates { memory_gb_s: 2.0 * gb_s, pcie_gb_s: gb_s, launch_us: 3.0 };
        let network = |own| Some(NetworkRates { one_way_us: 4.0, node_gb_s: 20.0, own_gb_s: own });
        let measured = Measured {
            devices: vec![
                vec![rates(10.0), rates(11.0)],
                vec![rates(12.0), rates(13.0)],
                vec![rates(7.0)],
            ],
            host_gb_s: vec![100.0, 120.0, 80.0],
            inside_us: vec![Some(2.0), Some(2.5), None],
            network: vec![network(19.0), network(20.0), network(5.0)],
            overhead_us: 0.5,
        };
        let text = text(&layout, &measured, "MPI");
        assert_eq!(text.matches("[[node]]").count(), 2, "{text}");
        assert_eq!(text.matches("[[node.device]]").count(), 2, "{text}");
        for part in [
            "name = \"6 ranks on a, b ... c\\\"\"",
            "latency_us = 3.00\noverhead_us = 0.500",
            "count = 2\nhost_gb_s = 120\nlatency_us = 1.50\nnics_gb_s = [20.0]",
            "vendor = \"nvidia\"\ncount = 2\npcie_gb_s = 12.0\nmemory_gb_s = 24.0",
            "vendor = \"amd\"\ncount = 1\nranks = 2\npcie_gb_s = 7.00",
            "latency_us = 1.0 # assumed: one rank a node",
        ] {
            // The third node has two ranks, and no time between them: as if it had one.
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert_eq!(text.matches("gpu_direct = false").count(), 1, "{text}");
    }
}
