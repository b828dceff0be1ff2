//! What the tests share: fabrics, ports, and buffers that know what they should hold.
#![allow(dead_code)]

use std::time::{Duration, Instant};

use hetccl_core::TransportError;
use hetccl_core::{
    Address, Group, Handle, MemoryType, MessageTag, Posted, Rank, Region, Transport,
};
use hetccl_ucx::{Channel, Fabric, FabricParams, Library, Port};

/// Longer than anything that works takes, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A tag from one number.
pub fn tag(step: u16) -> MessageTag {
    MessageTag { sequence: 3, step }
}

/// The loaded library.
pub fn library() -> &'static Library {
    // SAFETY: the tests' threads read the environment through std only, which takes turns with the loading.
    unsafe { Library::load() }.expect("UCX is needed to test its transport")
}

/// A fabric over the transports that `tls` lists.
pub fn fabric(tls: &str) -> Fabric {
    fabric_with_settings(tls, &[])
}

/// As [`fabric`], with more of UCX's settings.
pub fn fabric_with_settings(tls: &str, settings: &[(&str, &str)]) -> Fabric {
    let all = [("TLS", tls)].into_iter().chain(settings.iter().copied());
    let params = FabricParams {
        estimated_endpoints: 4,
        remote_memory: true,
        settings: all.map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        ..Default::default()
    };
    Fabric::open(library(), &params).expect("UCX starts")
}

/// A channel of context 5 between ranks whose addresses are in rank order.
pub fn channel(rank: u32, addresses: Vec<Vec<u8>>) -> Channel {
    let group = Group { rank: Rank(rank), size: addresses.len() as u32, remote_size: None };
    let resolve = move |peer: Rank| Ok((peer.0.into(), addresses[peer.index()].clone()));
    Channel::new(5, group, Box::new(resolve)).expect("a small communicator")
}

/// Memory for messages.
pub struct Buffer(pub Vec<u8>);

impl Buffer {
    pub fn zero(len: usize) -> Buffer {
        Buffer(vec![0; len])
    }

    /// Bytes that depend on place and seed.
    pub fn pattern(len: usize, seed: usize) -> Buffer {
        Buffer(
            (0..len)
                .map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed.wrapping_mul(97)) as u8)
                .collect(),
        )
    }

    pub fn region(&mut self) -> Region {
        let address = Address(self.0.as_mut_ptr() as usize);
        Region { address, len_bytes: self.0.len(), memory: MemoryType::Host }
    }
}

/// Two ranks of one communicator in this process.
pub struct Pair {
    pub fabrics: [Fabric; 2],
    pub channels: [Channel; 2],
}

impl Pair {
    pub fn new(tls: &str) -> Pair {
        Pair::with_settings(tls, &[])
    }

    /// As [`Pair::new`], with more of UCX's settings.
    pub fn with_settings(tls: &str, settings: &[(&str, &str)]) -> Pair {
        let fabrics = [fabric_with_settings(tls, settings), fabric_with_settings(tls, settings)];
        let addresses: Vec<Vec<u8>> =
            fabrics.iter().map(|fabric| fabric.address().to_vec()).collect();
        let channels = [channel(0, addresses.clone()), channel(1, addresses)];
        Pair { fabrics, channels }
    }

    pub fn port(&mut self, rank: usize) -> Port<'_> {
        Port { fabric: &mut self.fabrics[rank], channel: &mut self.channels[rank] }
    }

    pub fn send(&mut self, rank: usize, step: u16, from: Region) -> Result<Posted, TransportError> {
        self.port(rank).send(Rank(1 - rank as u32), tag(step), from)
    }

    pub fn recv(&mut self, rank: usize, step: u16, into: Region) -> Result<Posted, TransportError> {
        self.port(rank).recv(Rank(1 - rank as u32), tag(step), into)
    }

    pub fn progress(&mut self) {
        self.fabrics.iter_mut().for_each(|fabric| while fabric.progress() {});
    }

    /// Both sides work for a while.
    pub fn settle(&mut self) {
        let end = Instant::now() + Duration::from_millis(50);
        while Instant::now() < end {
            self.progress();
        }
    }

    /// Waits for an operation of `rank`.
    pub fn finish(&mut self, rank: usize, posted: Posted) -> Result<(), TransportError> {
        let Posted::Pending(handle) = posted else { return Ok(()) };
        let end = Instant::now() + PATIENCE;
        while !self.port(rank).test(handle)? {
            assert!(Instant::now() < end, "an operation of rank {rank} does not end");
            self.progress();
        }
        Ok(())
    }

    /// Sends from `rank` and receives at the other, in the order asked for.
    pub fn transfer(
        &mut self,
        rank: usize,
        step: u16,
        from: Region,
        into: Region,
        send_first: bool,
    ) {
        let (sent, received) = if send_first {
            let sent = self.send(rank, step, from).expect("send");
            self.settle();
            (sent, self.recv(1 - rank, step, into).expect("recv"))
        } else {
            let received = self.recv(1 - rank, step, into).expect("recv");
            (self.send(rank, step, from).expect("send"), received)
        };
        self.finish(rank, sent).expect("send ends well");
        self.finish(1 - rank, received).expect("recv ends well");
    }
}

/// The handle of something that must be under way.
pub fn pending(posted: Posted) -> Handle {
    match posted {
        Posted::Pending(handle) => handle,
        Posted::Done => panic!("the operation ended at once"),
    }
}
