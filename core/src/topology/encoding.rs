//! A topology as bytes, for the exchange between ranks, and the digest that they compare.
//!
//! Numbers are LEB128 varints. Equal neighbours are written once with their count: a thousand nodes of one kind, or the ranks of a
//! node one device after the other, take a few bytes.

use super::{Device, Network, NodeKind, Place, Topology, Vendor};

/// The first number of every encoding: what the rest means.
const VERSION: u64 = 1;

/// More nodes or ranks than this are taken for a mistake.
const MOST: u64 = 1 << 24;

/// Bytes that are no topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a topology: {what} at byte {at}")]
pub struct DecodeError {
    /// What was expected.
    pub what: &'static str,
    /// Where the bytes stop making sense.
    pub at: usize,
}

/// A 64-bit digest (FNV-1a) of the content of a file that all ranks must have alike: a difference is found, a forgery is not.
pub fn digest_of(content: &[u8]) -> u64 {
    content.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl Topology {
    /// The compact form.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer(Vec::new());
        let Network { latency_ns, overhead_ns, eager_bytes } = self.network;
        w.numbers([VERSION, latency_ns.into(), overhead_ns.into(), eager_bytes.into()]);
        w.number(self.kinds.len() as u64);
        for kind in &self.kinds {
            w.kind(kind);
        }
        w.runs(&self.nodes, |a, b| a == b, |w, &kind| w.number(kind.into()));
        // Runs of ranks that follow each other on one node's devices, one each.
        let follows = |a: &Place, b: &Place| {
            a.node == b.node && u32::from(a.device) + 1 == u32::from(b.device)
        };
        w.number(self.places.len() as u64);
        for run in self.places.chunk_by(follows) {
            w.numbers([run.len() as u64, run[0].node.into(), run[0].device.into()]);
        }
        w.0
    }

    /// Reads the compact form; the result is [valid](Topology::validate) as far as its references go.
    ///
    /// # Errors
    /// Where the bytes stop making sense.
    pub fn decode(bytes: &[u8]) -> Result<Topology, DecodeError> {
        let mut r = Reader { bytes, at: 0 };
        if r.number()? != VERSION {
            return Err(DecodeError { what: "another version of the encoding", at: 0 });
        }
        let network =
            Network { latency_ns: r.small()?, overhead_ns: r.small()?, eager_bytes: r.small()? };
        let kinds = r.list(Reader::kind)?;
        let total = r.number()?;
        r.within(total.saturating_add(1), MOST)?;
        let mut nodes = Vec::new();
        while (nodes.len() as u64) < total {
            let (count, kind) = (r.number()?, r.small()?);
            r.within(count, total - nodes.len() as u64)?;
            nodes.resize(nodes.len() + count as usize, kind);
        }
        let total = r.number()?;
        r.within(total.saturating_add(1), MOST)?;
        let mut places = Vec::new();
        while (places.len() as u64) < total {
            let (count, node, device) = (r.number()?, r.small()?, r.small::<u16>()?);
            r.within(count, (total - places.len() as u64).min(0x1_0000 - u64::from(device)))?;
            let last = (u64::from(device) + count - 1) as u16;
            places.extend((device..=last).map(|device| Place { node, device }));
        }
        if r.at != bytes.len() {
            return Err(DecodeError { what: "the end was expected", at: r.at });
        }
        let topology = Topology { network, kinds, nodes, places };
        match topology.validate() {
            Ok(()) => Ok(topology),
            Err(_) => Err(DecodeError { what: "numbers that point nowhere", at: bytes.len() }),
        }
    }

    /// The digest of the compact form.
    pub fn digest(&self) -> u64 {
        digest_of(&self.encode())
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn numbers<const N: usize>(&mut self, numbers: [u64; N]) {
        for number in numbers {
            self.number(number);
        }
    }

    fn runs<T>(&mut self, list: &[T], same: fn(&T, &T) -> bool, write: fn(&mut Writer, &T)) {
        self.number(list.len() as u64);
        for run in list.chunk_by(same) {
            self.number(run.len() as u64);
            write(self, &run[0]);
        }
    }

    fn kind(&mut self, kind: &NodeKind) {
        self.number(kind.name.len() as u64);
        self.0.extend_from_slice(kind.name.as_bytes());
        self.number(kind.nics.len() as u64);
        for &rate in &kind.nics {
            self.number(rate.into());
        }
        self.number(kind.devices.len() as u64);
        for device in &kind.devices {
            let Device { vendor, pcie_mb_s, fabric_mb_s, reduce_mb_s, copy_mb_s, .. } = *device;
            self.numbers([vendor as u64, pcie_mb_s.into(), fabric_mb_s.into(), reduce_mb_s.into()]);
            self.numbers([copy_mb_s.into(), device.launch_ns.into(), device.nic.into()]);
            self.number(device.gpu_direct.into());
        }
        self.numbers([
            kind.host_mb_s.into(),
            kind.latency_ns.into(),
            kind.cross_vendor_peer.into(),
        ]);
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn error<T>(&self, what: &'static str) -> Result<T, DecodeError> {
        Err(DecodeError { what, at: self.at })
    }

    fn number(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let Some(&byte) = self.bytes.get(self.at) else {
                return self.error("more bytes were expected");
            };
            self.at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        self.error("a number of more than 64 bits")
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Result<T, DecodeError> {
        let number = self.number()?;
        T::try_from(number).or_else(|_| self.error("a smaller number was expected"))
    }

    fn within(&self, count: u64, most: u64) -> Result<(), DecodeError> {
        if (1..=most).contains(&count) { Ok(()) } else { self.error("a count that does not fit") }
    }

    fn list<T>(
        &mut self,
        item: fn(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.number()?;
        // Every item takes a byte at least.
        if count > (self.bytes.len() - self.at) as u64 {
            return self.error("a count that does not fit");
        }
        (0..count).map(|_| item(self)).collect()
    }

    fn kind(&mut self) -> Result<NodeKind, DecodeError> {
        let count = self.number()?;
        let name = self.bytes[self.at..].get(..usize::try_from(count).unwrap_or(usize::MAX));
        let Some(name) = name.and_then(|name| std::str::from_utf8(name).ok()) else {
            return self.error("a name");
        };
        self.at += name.len();
        Ok(NodeKind {
            name: name.to_owned(),
            nics: self.list(Reader::small)?,
            devices: self.list(Reader::device)?,
            host_mb_s: self.small()?,
            latency_ns: self.small()?,
            cross_vendor_peer: self.number()? != 0,
        })
    }

    fn device(&mut self) -> Result<Device, DecodeError> {
        let vendor = self.number()?;
        let Some(&vendor) = Vendor::ALL.get(usize::try_from(vendor).unwrap_or(usize::MAX)) else {
            return self.error("a vendor");
        };
        Ok(Device {
            vendor,
            pcie_mb_s: self.small()?,
            fabric_mb_s: self.small()?,
            reduce_mb_s: self.small()?,
            copy_mb_s: self.small()?,
            launch_ns: self.small()?,
            nic: self.small()?,
            gpu_direct: self.number()? != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::cases::machine;

    #[test]
    fn what_is_written_is_read() {
        for seed in 0..40 {
            for size in [1, 2, 5, 16, 33] {
                let topology = machine(size, seed);
                let bytes = topology.encode();
                assert_eq!(Topology::decode(&bytes).unwrap(), topology);
                for end in 0..bytes.len() {
                    assert!(
                        Topology::decode(&bytes[..end]).is_err(),
                        "{end} of {} bytes",
                        bytes.len()
                    );
                }
            }
        }
    }

    #[test]
    fn a_thousand_equal_nodes_take_a_few_bytes_each() {
        let kind = machine(8, 0).kinds[0].clone();
        let devices = kind.devices.len() as u16;
        let places = (0..1024)
            .flat_map(|node| (0..devices).map(move |device| Place { node, device }))
            .collect();
        let topology = Topology {
            network: Network::default(),
            kinds: vec![kind],
            nodes: vec![0; 1024],
            places,
        };
        let bytes = topology.encode().len();
        assert!(bytes < 6 * 1024, "{bytes} bytes");
    }

    #[test]
    fn nonsense_is_an_error() {
        assert_eq!(Topology::decode(&[9]).unwrap_err().what, "another version of the encoding");
        assert!(Topology::decode(&[]).is_err());
        assert!(Topology::decode(&[0xff; 40]).is_err());
        let mut bytes = machine(5, 3).encode();
        for at in 0..bytes.len() {
            let kept = bytes[at];
            for value in [0, 1, 0x7f, 0xff] {
                bytes[at] = value;
                // Must not panic nor allocate without end.
                let _ = Topology::decode(&bytes);
            }
            bytes[at] = kept;
        }
    }
}
