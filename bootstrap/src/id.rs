//! The unique id: where the root is, and a secret.
//!
//! ```text
//! byte  0  magic "HETCCLid"
//!       8  version, 2 bytes, big end first, as all numbers
//!      10  flags: 1 = made from NCCL_COMM_ID, the root is started by the first rank
//!      11  number of addresses, 1 or more
//!      12  port of the root
//!      14  secret, 16 bytes
//!      30  addresses, the best first: one byte (bit 7: IPv6; bits 0-6: length of the name), interface name, address
//!          zeros to the end
//! ```
//!
//! The bytes are the same in a process on NVIDIA and in one on AMD GPUs: ids may be made by either.

use std::net::{IpAddr, ToSocketAddrs};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::interfaces::{self, Address};
use crate::wire::{self, VERSION};

/// The size of NCCL's `ncclUniqueId`.
pub const UNIQUE_ID_BYTES: usize = 128;

const MAGIC: &[u8; 8] = b"HETCCLid";
const FLAG_FIXED: u8 = 1;
const ADDRESSES_AT: usize = 30;
const V6_BIT: u8 = 0x80;
/// An interface's longest name in Linux.
const MOST_NAME_BYTES: usize = 15;

/// What one rank makes and all ranks join with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueId {
    pub(crate) secret: [u8; 16],
    pub(crate) port: u16,
    pub(crate) addresses: Vec<Address>,
    /// Made from NCCL_COMM_ID: nobody serves it until the first rank joins.
    pub(crate) fixed: bool,
}

impl UniqueId {
    /// Makes an id. This process is its root from now on; with NCCL_COMM_ID the process of the first rank will be.
    ///
    /// # Errors
    /// No usable interface, no port, or an NCCL_COMM_ID that can't be used.
    pub fn create(config: &Config) -> Result<UniqueId> {
        if let Some(place) = &config.comm_id {
            return UniqueId::fixed(place);
        }
        let addresses = interfaces::addresses(config)?;
        let hub = Hub::of_this_process(config)?;
        let secret: [u8; 16] = rand::random();
        hub.serve_id(secret);
        let id = UniqueId { secret, port: hub.port(), addresses, fixed: false };
        // What does not fit is dropped here as it would be on the way.
        UniqueId::from_bytes(&id.to_bytes())
    }

    /// The id that every process makes from one NCCL_COMM_ID.
    fn fixed(place: &str) -> Result<UniqueId> {
        let wrong = |reason: String| Error::Setting {
            name: "NCCL_COMM_ID",
            value: place.to_owned(),
            reason,
        };
        let resolved = place.to_socket_addrs().map_err(|error| {
            wrong(format!("must be host:port or [IPv6 address]:port of the first rank ({error})"))
        })?;
        let mut addresses: Vec<Address> = Vec::new();
        let mut port = 0;
        for found in resolved {
            port = found.port();
            if addresses.iter().all(|address| address.ip != found.ip()) {
                addresses.push(Address { ip: found.ip(), interface: String::new() });
            }
        }
        if port == 0 {
            return Err(wrong("must have a port other than 0, the same on every rank".into()));
        }
        let secret = wire::digest(place.as_bytes(), 0).to_be_bytes();
        let more = wire::digest(place.as_bytes(), 1).to_be_bytes();
        let mut both = [0; 16];
        both[..8].copy_from_slice(&secret);
        both[8..].copy_from_slice(&more);
        let id = UniqueId { secret: both, port, addresses, fixed: true };
        UniqueId::from_bytes(&id.to_bytes())
    }

    /// The bytes to hand around.
    pub fn to_bytes(&self) -> [u8; UNIQUE_ID_BYTES] {
        let mut bytes = [0; UNIQUE_ID_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_be_bytes());
        bytes[10] = if self.fixed { FLAG_FIXED } else { 0 };
        bytes[12..14].copy_from_slice(&self.port.to_be_bytes());
        bytes[14..30].copy_from_slice(&self.secret);
        // Names are for error messages: they go first when there is no room.
        let room = UNIQUE_ID_BYTES - ADDRESSES_AT;
        let with_names: usize = self.addresses.iter().map(|a| encoded(a, true).len()).sum();
        let mut at = ADDRESSES_AT;
        for address in &self.addresses {
            let entry = encoded(address, with_names <= room);
            if let Some(place) = bytes.get_mut(at..at + entry.len()) {
                place.copy_from_slice(&entry);
                at += entry.len();
                bytes[11] += 1;
            }
        }
        bytes
    }

    /// Reads the bytes of another process.
    ///
    /// # Errors
    /// [`Error::NotAnId`] when hetccl did not make them, [`Error::Version`] when another hetccl did.
    pub fn from_bytes(bytes: &[u8; UNIQUE_ID_BYTES]) -> Result<UniqueId> {
        let wrong = |reason| Error::NotAnId { reason };
        if &bytes[..8] != MAGIC {
            return Err(wrong("its first bytes are not hetccl's"));
        }
        let version = u16::from_be_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(Error::Version {
                whose: "the rank that made this id".into(),
                theirs: version,
            });
        }
        let fixed = match bytes[10] {
            0 => false,
            FLAG_FIXED => true,
            _ => return Err(wrong("unknown flags")),
        };
        let port = u16::from_be_bytes([bytes[12], bytes[13]]);
        let mut secret = [0; 16];
        secret.copy_from_slice(&bytes[14..30]);
        let mut rest = &bytes[ADDRESSES_AT..];
        let mut addresses = Vec::new();
        for _ in 0..bytes[11] {
            let (address, after) = decoded(rest).ok_or(wrong("an address is damaged"))?;
            addresses.push(address);
            rest = after;
        }
        if port == 0 || addresses.is_empty() {
            return Err(wrong("it has no address"));
        }
        if rest.iter().any(|&byte| byte != 0) {
            return Err(wrong("there is something after the last address"));
        }
        Ok(UniqueId { secret, port, addresses, fixed })
    }
}

fn encoded(address: &Address, with_name: bool) -> Vec<u8> {
    let usable = with_name && printable(address.interface.as_bytes());
    let name: &[u8] = if usable { address.interface.as_bytes() } else { &[] };
    let mut entry = vec![name.len() as u8 | if address.ip.is_ipv6() { V6_BIT } else { 0 }];
    entry.extend_from_slice(name);
    match address.ip {
        IpAddr::V4(ip) => entry.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => entry.extend_from_slice(&ip.octets()),
    }
    entry
}

fn decoded(bytes: &[u8]) -> Option<(Address, &[u8])> {
    let (&head, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(head & !V6_BIT))?;
    if !printable(name) {
        return None;
    }
    let interface = String::from_utf8(name.to_vec()).ok()?;
    let (ip, rest) = if head & V6_BIT == 0 {
        let (octets, rest) = rest.split_first_chunk::<4>()?;
        (IpAddr::from(*octets), rest)
    } else {
        let (octets, rest) = rest.split_first_chunk::<16>()?;
        (IpAddr::from(*octets), rest)
    };
    Some((Address { ip, interface }, rest))
}

fn printable(name: &[u8]) -> bool {
    name.len() <= MOST_NAME_BYTES && name.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address() -> impl Strategy<Value = Address> {
        (any::<IpAddr>(), "[a-z][a-z0-9.:@-]{0,14}")
            .prop_map(|(ip, interface)| Address { ip, interface })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            secret: [u8; 16], port in 1u16.., fixed: bool, addresses in prop::collection::vec(address(), 1..20),
        ) {
            let id = UniqueId { secret, port, addresses, fixed };
            let read = UniqueId::from_bytes(&id.to_bytes()).unwrap();
            prop_assert_eq!((read.secret, read.port, read.fixed), (secret, port, fixed));
            prop_assert!(!read.addresses.is_empty() && read.addresses.len() <= id.addresses.len());
            let room = UNIQUE_ID_BYTES - ADDRESSES_AT;
            let named: usize = id.addresses.iter().map(|a| encoded(a, true).len()).sum();
            let plain: usize = id.addresses.iter().map(|a| encoded(a, false).len()).sum();
            if named <= room {
                prop_assert_eq!(&read.addresses, &id.addresses);
            } else if plain <= room {
                prop_assert_eq!(read.addresses.len(), id.addresses.len());
            }
            prop_assert_eq!(read.addresses[0].ip, id.addresses[0].ip);
            prop_assert_eq!(read.to_bytes(), UniqueId::from_bytes(&read.to_bytes()).unwrap().to_bytes());
        }

        #[test]
        fn damaged_bytes_are_refused_or_read_but_never_panic(
            at in 0usize..128, value: u8, tail in prop::collection::vec(any::<u8>(), 98),
        ) {
            let one = Address { ip: [10, 0, 0, 1].into(), interface: "eth0".into() };
            let id = UniqueId { secret: [7; 16], port: 9, addresses: vec![one], fixed: false };
            let mut bytes = id.to_bytes();
            bytes[at] = value;
            if let Ok(read) = UniqueId::from_bytes(&bytes) {
                prop_assert_eq!(read.to_bytes(), bytes);
            }
            bytes[ADDRESSES_AT..].copy_from_slice(&tail);
            bytes[11] = value;
            let _ = UniqueId::from_bytes(&bytes);
        }
    }

    #[test]
    fn the_bytes_are_fixed() {
        let v4 = Address { ip: [10, 0, 0, 1].into(), interface: "eth0".into() };
        let v6 = Address { ip: "fd00::2".parse().unwrap(), interface: String::new() };
        let id =
            UniqueId { secret: [0xAB; 16], port: 0x1234, addresses: vec![v4, v6], fixed: false };
        let mut expected = b"HETCCLid\x00\x02\x00\x02\x12\x34".to_vec();
        expected.extend([0xAB; 16]);
        expected.extend(b"\x04eth0\x0a\x00\x00\x01");
        expected.extend(b"\x80\xfd\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02");
        expected.resize(128, 0);
        assert_eq!(id.to_bytes().to_vec(), expected);
    }

    #[test]
    fn foreign_ids_say_what_they_are() {
        let mut nccl = [0; 128];
        nccl[..8].copy_from_slice(&0xfeed_c0de_u64.to_ne_bytes());
        let error = UniqueId::from_bytes(&nccl).unwrap_err().to_string();
        assert!(error.contains("another NCCL or RCCL library"), "{error}");
        let mut newer = [0; 128];
        newer[..8].copy_from_slice(MAGIC);
        newer[9] = 77;
        let error = UniqueId::from_bytes(&newer).unwrap_err().to_string();
        assert!(error.contains("version 77") && error.contains("same hetccl"), "{error}");
    }

    #[test]
    fn comm_ids_take_addresses_and_names() {
        for place in ["127.0.0.1:4711", "[::1]:4711", "localhost:4711"] {
            let id = UniqueId::fixed(place).unwrap();
            assert!(id.fixed && id.port == 4711 && id.addresses[0].ip.is_loopback(), "{place}");
            assert_eq!(id, UniqueId::fixed(place).unwrap());
        }
        for place in ["", "localhost", "127.0.0.1:0", "127.0.0.1:70000", "::1"] {
            let error = UniqueId::fixed(place).unwrap_err().to_string();
            assert!(error.contains("NCCL_COMM_ID"), "{place}: {error}");
        }
    }
}
