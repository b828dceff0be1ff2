//! The addresses of this host that others may connect to, the best first.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use serde::{Deserialize, Serialize};

use crate::config::{Config, Family, Filter};
use crate::error::{Error, Result};
use crate::id::UniqueId;

/// An address and the interface that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address. Never a link-local one: those mean nothing on another host.
    pub ip: IpAddr,
    /// The interface; empty where it is not known.
    pub interface: String,
}

/// Names of interfaces that hosts have for themselves: others rarely get through to them, and several hosts often have the
/// same address there.
const INTERNAL: [&str; 12] = [
    "veth", "br-", "docker", "virbr", "cilium", "lxc", "lxd", "cni", "cali", "flannel", "podman",
    "tap",
];

/// This host's usable addresses in the order of preference: as NCCL_SOCKET_IFNAME lists them; otherwise InfiniBand,
/// everything ordinary, those for containers and virtual machines, and the loopback interface.
///
/// # Errors
/// When there is none, with the names of those that are there.
pub fn addresses(config: &Config) -> Result<Vec<Address>> {
    let all = up()?;
    let mut found: Vec<((usize, usize), Address)> = all
        .iter()
        .filter(|address| config.family.is_none_or(|family| family_of(address.ip) == family))
        .filter_map(|address| {
            let place = config.interfaces.place(&address.interface)?;
            let class = match config.interfaces.names_interfaces() {
                true => 0,
                false => class(address),
            };
            Some(((class, place), address.clone()))
        })
        .collect();
    found.sort_by_key(|(order, _)| *order);
    if found.is_empty() {
        let mut reason = match config.interfaces == Filter::default() {
            true => "none has an address".to_owned(),
            false => format!("none fits {}", config.interfaces),
        };
        if let Some(family) = config.family {
            reason += &format!(" and NCCL_SOCKET_FAMILY {family:?}");
        }
        return Err(Error::NoInterface { reason, present: in_words(&all) });
    }
    Ok(found.into_iter().map(|(_, address)| address).collect())
}

/// The same, but the address that leads to an id's root comes first unless the user has said which interfaces to use.
pub(crate) fn addresses_towards(config: &Config, id: &UniqueId) -> Result<Vec<Address>> {
    let mut found = addresses(config)?;
    let root = id.addresses.first().map(|root| SocketAddr::new(root.ip, id.port));
    if !config.interfaces.names_interfaces()
        && let Some(way) = root.and_then(way_to).filter(|way| !way.ip.is_loopback())
    {
        found.sort_by_key(|address| address.ip != way.ip);
    }
    Ok(found)
}

/// The interfaces of this host, for an error.
pub(crate) fn here() -> String {
    up().map_or_else(|error| error.to_string(), |all| in_words(&all))
}

/// The interface and address that this host would use to reach another.
pub(crate) fn way_to(other: SocketAddr) -> Option<Address> {
    let any: SocketAddr = match other {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any).ok()?;
    // Connecting a datagram socket sends nothing; it chooses the route.
    socket.connect(other).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    let known = up().ok()?.into_iter().find(|address| address.ip == ip);
    Some(known.unwrap_or(Address { ip, interface: String::new() }))
}

/// Every address that is up, in the system's order.
fn up() -> Result<Vec<Address>> {
    let all = getifaddrs().map_err(|error| Error::System {
        what: "listing network interfaces",
        reason: error.to_string(),
    })?;
    let wanted = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    let usable = all.filter(|entry| entry.flags.contains(wanted)).filter_map(|entry| ip_of(&entry));
    Ok(usable.collect())
}

fn ip_of(entry: &InterfaceAddress) -> Option<Address> {
    let storage = entry.address.as_ref()?;
    let ip = match (storage.as_sockaddr_in(), storage.as_sockaddr_in6()) {
        (Some(v4), _) => IpAddr::V4(v4.ip()),
        (_, Some(v6)) => IpAddr::V6(v6.ip()),
        _ => return None,
    };
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    (!link_local).then(|| Address { ip, interface: entry.interface_name.clone() })
}

fn class(address: &Address) -> usize {
    let name = address.interface.as_str();
    match () {
        () if address.ip.is_loopback() || name == "lo" => 3,
        () if INTERNAL.iter().any(|prefix| name.starts_with(prefix)) => 2,
        () if name.starts_with("ib") => 0,
        () => 1,
    }
}

fn family_of(ip: IpAddr) -> Family {
    if ip.is_ipv4() { Family::V4 } else { Family::V6 }
}

fn in_words(all: &[Address]) -> String {
    match all.is_empty() {
        true => "none".into(),
        false => {
            let words = all.iter().map(|address| format!("{} {}", address.interface, address.ip));
            words.collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_interfaces_come_last() {
        let of = |interface: &str, ip: &str| {
            class(&Address { ip: ip.parse().unwrap(), interface: interface.into() })
        };
        assert_eq!(of("ib0", "10.0.0.1"), 0);
        for name in ["eth0", "enp3s0", "bond0", "hsn0", "brother0"] {
            assert_eq!(of(name, "10.0.0.1"), 1, "{name}");
        }
        for name in ["veth12ab", "br-0f3a", "docker0", "virbr0", "cilium_host"] {
            assert_eq!(of(name, "172.17.0.1"), 2, "{name}");
        }
        assert_eq!(of("lo", "127.0.0.1"), 3);
        assert_eq!(of("lo", "::1"), 3);
    }

    #[test]
    fn an_interface_that_is_not_there_is_named_with_those_that_are() {
        let config = Config { interfaces: Filter::parse("=nosuch0"), ..Config::default() };
        let error = addresses(&config).unwrap_err().to_string();
        assert!(error.contains("NCCL_SOCKET_IFNAME==nosuch0"), "{error}");
        assert!(error.contains("lo 127.0.0.1"), "{error}");
    }
}
