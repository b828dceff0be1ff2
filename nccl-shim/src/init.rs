//! Making communicators: ranks meet, tell each other what they are, and start an engine each.

use std::ffi::c_void;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use hetccl_core::topology::{self, Identity};
use hetccl_core::{Address, Datatype, Group, Rank, ReductionOp, Region};
use hetccl_runtime::gpu::{self, Change, Driver, Gpus, Vendor};
use hetccl_runtime::{Communicator, HierarchyChoice, MessageCounts, Process, Settings, Wire};

use crate::abi::{Code, Element, UniqueId};
use crate::comm::{Device, Live};
use crate::delegate::Kept;
use crate::delegate::agree::{self, Wish};
use crate::delegate::inside::{self, Gather, Inside};
use crate::engine::{Engine, Shared};
use crate::log::{self, Level};
use crate::mesh::Link;
use crate::order::Words;
use crate::reducer::Float8Reducer;
use crate::weights::Weights;
use crate::{Failure, Library, meeting, settings, weights};

/// Changes when ranks of different builds could not talk.
const WIRE_VERSION: u32 = 3;
const MOST_ADDRESSES: usize = 8;
const WARM_BYTES: usize = 256;

/// What a rank tells the others of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    version: u32,
    pub(crate) vendor: u8,
    /// Whether collectives go by vendor groups, as the rank's setting has it.
    pub(crate) hierarchy: u8,
    port: u16,
    /// The same for all ranks on one device.
    pub(crate) device: u64,
    pub(crate) host: u64,
    /// The same for ranks that reach each other over the loopback interface.
    network: u64,
    addresses: [u32; MOST_ADDRESSES],
    /// Whether calls may go to the vendor's library.
    pub(crate) wish: Wish,
    /// Whether vendors' libraries may work inside their groups.
    pub(crate) group_library: u8,
    /// How much the rank counts in averages.
    pub(crate) weight: u64,
}

/// Bytes of a card.
pub(crate) const CARD_BYTES: usize = 32 + 4 * MOST_ADDRESSES + 16;

impl Card {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(CARD_BYTES);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&[self.vendor, self.hierarchy]);
        bytes.extend_from_slice(&self.port.to_le_bytes());
        for word in [self.device, self.host, self.network] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for address in self.addresses {
            bytes.extend_from_slice(&address.to_le_bytes());
        }
        bytes.extend_from_slice(&[self.wish as u8, self.group_library, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&self.weight.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Card, Failure> {
        let bytes: &[u8; CARD_BYTES] = bytes.try_into().map_err(|_| {
            Failure::new(Code::InternalError, "a rank describes itself in another version's words: load the same hetccl everywhere")
        })?;
        let word = |from: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[from + i]));
        Ok(Card {
            version: u32::from_le_bytes(std::array::from_fn(|i| bytes[i])),
            vendor: bytes[4],
            hierarchy: bytes[5],
            port: u16::from_le_bytes([bytes[6], bytes[7]]),
            device: word(8),
            host: word(16),
            network: word(24),
            addresses: std::array::from_fn(|i| {
                u32::from_le_bytes(std::array::from_fn(|j| bytes[32 + 4 * i + j]))
            }),
            wish: Wish::from_number(bytes[32 + 4 * MOST_ADDRESSES]),
            group_library: bytes[32 + 4 * MOST_ADDRESSES + 1],
            weight: word(32 + 4 * MOST_ADDRESSES + 8),
        })
    }

    /// Where the rank is, for schedules.
    fn identity(&self) -> Identity {
        let vendor = Vendor::from_number(u64::from(self.vendor));
        // One kernel may serve containers with networks of their own, which are nodes to each other.
        let node = self.host ^ self.network;
        let maker = vendor.map_or(topology::Vendor::Host, Vendor::maker);
        Identity { node, vendor: maker, device: self.device }
    }

    /// Where a rank with the card `from` finds this one, the nearest first.
    fn places(&self, from: &Card) -> Vec<SocketAddr> {
        let near = self.host == from.host && self.network == from.network;
        let mut ips: Vec<Ipv4Addr> = self
            .addresses
            .iter()
            .filter(|&&bits| bits != 0)
            .map(|&bits| Ipv4Addr::from_bits(bits))
            .collect();
        ips.sort_by_key(|ip| ip.is_loopback() != near);
        ips.into_iter().map(|ip| SocketAddr::from((ip, self.port))).collect()
    }
}

/// A rank before it meets the others.
pub(crate) struct Seat {
    library: Library,
    listener: TcpListener,
    driver: Box<dyn Driver>,
    device: Device,
    pub(crate) card: Card,
}

/// The vendor of a library.
pub(crate) fn vendor(library: Library) -> Vendor {
    match library {
        Library::Nccl => Vendor::Cuda,
        Library::Rccl => Vendor::Rocm,
    }
}

/// The calling thread's device.
///
/// # Errors
/// No driver, no device.
pub(crate) fn current_device(library: Library) -> Result<Device, Failure> {
    let (number, context) = vendor(library).open()?.current()?;
    Ok(Device { number, context })
}

/// A device by its number.
///
/// # Errors
/// No driver, no such device.
pub(crate) fn device(library: Library, number: u32) -> Result<Device, Failure> {
    let driver = vendor(library).open()?;
    if number >= driver.devices() {
        return Err(Failure::argument(format!(
            "device {number} is not there; there are {}",
            driver.devices()
        )));
    }
    Ok(Device { number, context: driver.context(number)? })
}

/// Opens a port and describes this rank.
///
/// # Errors
/// Of the driver or the system.
pub(crate) fn sit(library: Library, device: Device) -> Result<Seat, Failure> {
    use std::hash::{Hash, Hasher};
    let driver = vendor(library).open()?;
    let listener = TcpListener::bind("0.0.0.0:0")
        .map_err(|error| Failure::system("listening for other ranks", &error))?;
    let port = listener.local_addr().map_err(|error| Failure::system("a port", &error))?.port();
    let mut addresses = [0; MOST_ADDRESSES];
    for (place, address) in addresses.iter_mut().zip(meeting::addresses()) {
        *place = address.to_bits();
    }
    let mut hasher = std::hash::DefaultHasher::new();
    std::fs::read_link("/proc/self/ns/net").unwrap_or_default().hash(&mut hasher);
    let card = Card {
        version: WIRE_VERSION,
        vendor: driver.vendor() as u8,
        hierarchy: hierarchy()? as u8,
        port,
        device: gpu::device_number(&*driver, device.number)?,
        host: settings::variable("NCCL_HOSTID").map_or_else(gpu::host_id, |id| {
            let mut hasher = std::hash::DefaultHasher::new();
            id.hash(&mut hasher);
            hasher.finish()
        }),
        network: hasher.finish(),
        addresses,
        wish: Wish::own(),
        group_library: inside::setting()? as u8,
        weight: weights::own(),
    };
    Ok(Seat { library, listener, driver, device, card })
}

/// A new communicator.
pub(crate) enum Joined {
    /// hetccl's own.
    Own(Box<Live>),
    /// One of the vendor's library.
    Vendor(NonNull<c_void>),
}

/// Makes a rank of a new communicator with all that have the unique id. `wanted` says whether the program still wants it.
///
/// # Errors
/// The ranks do not meet, or do not fit together.
pub(crate) fn join(
    library: Library,
    device: Device,
    ids: &[UniqueId],
    (rank, size): (usize, usize),
    config: Option<Kept>,
    wanted: impl Fn() -> bool,
) -> Result<Joined, Failure> {
    let begun = Instant::now();
    let seat = sit(library, device)?;
    let secret = meeting::secret(&ids[0]);
    let met = meeting::meet(ids, rank, size)?;
    let cards = met.gather(seat.card.to_bytes())?;
    let cards = cards.iter().map(|bytes| Card::from_bytes(bytes)).collect::<Result<Vec<_>, _>>()?;
    let agreed = seat.agree((rank, &cards), &|own| met.gather(own))?;
    met.part()?;
    let joined = seat.take((rank, &cards), agreed, secret, config, wanted)?;
    log::line(
        Level::Info,
        &format!("rank {rank} of {size}: init took {:.1} ms", begun.elapsed().as_secs_f64() * 1e3),
    );
    Ok(joined)
}

/// What the ranks of a new communicator have agreed on.
pub(crate) enum Agreed {
    /// It is the vendor's, with this id.
    Vendor(UniqueId),
    /// It is hetccl's, with the vendors' libraries inside groups where they can.
    Own(Inside),
}

impl Seat {
    /// Agrees with the ranks that have these cards on who does the communicator's work.
    ///
    /// # Errors
    /// Settings that can't be followed; of `gather`.
    pub(crate) fn agree(
        &self,
        (rank, cards): (usize, &[Card]),
        gather: &Gather<'_>,
    ) -> Result<Agreed, Failure> {
        if let Some(id) = agree::agree(self.library, rank, cards, gather)? {
            return Ok(Agreed::Vendor(id));
        }
        let context = self.device.context;
        self.driver.adopt(context)?;
        inside::agree(self.library, context, rank, cards, gather).map(Agreed::Own)
    }

    /// Starts the rank: in the vendor's library where there is an id for it, in an engine of hetccl's otherwise.
    ///
    /// # Errors
    /// Of either.
    pub(crate) fn take(
        self,
        (rank, cards): (usize, &[Card]),
        agreed: Agreed,
        secret: [u8; 16],
        config: Option<Kept>,
        wanted: impl Fn() -> bool,
    ) -> Result<Joined, Failure> {
        let id = match agreed {
            Agreed::Vendor(id) => id,
            Agreed::Own(inside) => {
                return Ok(Joined::Own(Box::new(start(self, rank, cards, secret, inside)?)));
            }
        };
        self.driver.adopt(self.device.context)?;
        agree::join(self.library, id, rank, cards.len(), config, wanted).map(Joined::Vendor)
    }
}

/// Starts a rank whose communicator has these cards, by rank.
///
/// # Errors
/// Ranks that do not fit together, the driver's or the system's.
pub(crate) fn start(
    seat: Seat,
    rank: usize,
    cards: &[Card],
    secret: [u8; 16],
    inside: Inside,
) -> Result<Live, Failure> {
    let size = cards.len();
    let Seat { listener, driver, device, card, .. } = seat;
    if let Some(other) = cards.iter().position(|other| other.version != card.version) {
        return Err(Failure::usage(format!(
            "rank {other} has another version of hetccl: load the same everywhere"
        )));
    }
    if let Some(other) = cards.iter().position(|other| other.hierarchy != card.hierarchy) {
        return Err(Failure::usage(format!(
            "rank {other} has another {HIERARCHY}: set the same everywhere"
        )));
    }
    if let Some(other) = cards.iter().position(|other| other.group_library != card.group_library) {
        return Err(Failure::usage(format!(
            "rank {other} has another {}: set the same everywhere",
            inside::SETTING
        )));
    }
    let all: Vec<u64> = cards.iter().map(|card| card.weight).collect();
    let weights = Weights::agree(rank, &all)?;
    let one_device = size > 1 && cards.iter().all(|other| other.device == card.device);
    if rank == 0 {
        settings::tell_ignored();
    }
    let settings = Settings {
        hierarchy: hierarchy()?,
        group_library: inside::setting()?,
        ..Settings::default()
    };
    let gpus =
        Gpus::new(vec![driver.vendor().open()?], settings.pinned_keep_bytes).ordered_by_caller();
    let mut process = Process::new(settings, Box::new(Float8Reducer));
    process.use_gpus(gpus);
    warm(&*driver, device, &mut process)?;
    let (wire, link) = if size == 1 {
        (Wire::Alone, None)
    } else {
        let places = cards.iter().map(|other| other.places(&card)).collect();
        let link = Link::new(rank, secret, listener, places)?;
        (Wire::Foreign(Box::new(link.clone())), Some(link))
    };
    let group = Group { rank: Rank::from(rank), size: Rank::from(size).0, remote_size: None };
    let communicator = Communicator::new(0, group, wire)
        .with_any_memory(true)
        .with_one_device(one_device)
        .with_identities(cards.iter().map(Card::identity), process.settings())
        .with_libraries(&inside.vendors, inside.own);
    if let Some(hierarchy) = communicator.hierarchy() {
        log::line(Level::Info, &format!("rank {rank} of {size}: {}", groups_text(hierarchy)));
    }
    let words = Words::new(&*driver, device.context)?;
    let shared = Arc::new(Shared::new(words, process.gpus().loaded_kernels()));
    let device_bytes = process.gpus().device_bytes();
    let engine = Engine {
        shared: shared.clone(),
        process,
        communicator,
        context: device.context,
        link,
        rank,
        size,
        messages: MessageCounts::of_program(),
        own_messages: MessageCounts::of_front_end(),
    };
    let thread = std::thread::Builder::new()
        .name(format!("hetccl-{rank}"))
        .spawn(move || engine.run())
        .map_err(|error| Failure::system("starting a thread", &error))?;
    log::line(
        Level::Info,
        &format!(
            "rank {rank} of {size} on {} device {}: {}",
            driver.vendor().name(),
            device.number,
            if one_device {
                "all ranks on one device"
            } else {
                "messages over TCP, device memory by IPC inside a host"
            }
        ),
    );
    let mut live = Live::new(rank, size, shared, secret, driver, thread);
    live.device_bytes = device_bytes;
    live.weights = weights;
    Ok(live)
}

/// The environment variable that says whether collectives go by vendor groups.
const HIERARCHY: &str = "HETCCL_HIERARCHY";

/// What it says.
///
/// # Errors
/// A word that it does not know.
fn hierarchy() -> Result<HierarchyChoice, Failure> {
    word(HIERARCHY, HierarchyChoice::NAMES).map(|number| HierarchyChoice::ALL[number])
}

/// The number of the word that a variable has; 0, the default, where it is not set.
///
/// # Errors
/// A word that is not among them.
pub(crate) fn word(variable: &str, names: &[&str]) -> Result<usize, Failure> {
    let Ok(word) = std::env::var(variable) else { return Ok(0) };
    names.iter().position(|&name| name == word).ok_or_else(|| {
        Failure::argument(format!("{variable} is {word:?}; possible: {}", names.join(", ")))
    })
}

fn groups_text(hierarchy: &topology::Hierarchy) -> String {
    let groups: Vec<String> = hierarchy
        .vendor_groups()
        .iter()
        .map(|(vendor, ranks)| format!("{} {}", ranks.len(), vendor.name()))
        .collect();
    let nodes = hierarchy.topology().nodes.len();
    format!("vendor groups of {} ranks on {nodes} nodes", groups.join(" and "))
}

/// Makes ready what the first collective would otherwise make while streams are held back: the library's own stream, and
/// the kernels of the usual types. A driver may wait for all streams while it loads a kernel.
fn warm(driver: &dyn Driver, device: Device, process: &mut Process) -> Result<(), Failure> {
    const USUAL: [Datatype; 4] =
        [Datatype::Float32, Datatype::Bfloat16, Datatype::Float16, Datatype::Float64];
    driver.adopt(device.context)?;
    let address = driver.allocate(device.context, WARM_BYTES)?;
    let memory = driver.vendor().memory();
    let region = Region { address: Address(address), len_bytes: WARM_BYTES, memory };
    let gpus = process.gpus();
    let made = gpus.lane(region).map(|lane| {
        for element in [Element::Float8e4m3, Element::Float8e5m2] {
            for change in [Change::Divide(1), Change::Multiply(1)] {
                let _ = gpus.can_map(lane, change, element.mapped());
            }
        }
        for datatype in USUAL {
            // Where there are no kernels, the host reduces.
            if gpus.can_reduce(lane, ReductionOp::Sum, datatype) {
                let _ = gpus.can_map(lane, Change::Divide(1), datatype.into());
            }
        }
    });
    driver.free(device.context, address);
    Ok(made?)
}

#[cfg(test)]
impl Card {
    /// A card that says nothing in particular.
    pub(crate) fn for_tests() -> Card {
        Card {
            version: 1,
            vendor: 1,
            hierarchy: 2,
            port: 4711,
            device: 2,
            host: 3,
            network: 4,
            addresses: [
                Ipv4Addr::new(10, 0, 0, 1).to_bits(),
                Ipv4Addr::LOCALHOST.to_bits(),
                0,
                0,
                0,
                0,
                0,
                0,
            ],
            wish: Wish::Never,
            group_library: 0,
            weight: 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_survive_the_wire() {
        let card = Card { group_library: 2, ..Card::for_tests() };
        assert_eq!(Card::from_bytes(&card.to_bytes()), Ok(card));
        assert!(card.places(&card)[0].ip().is_loopback());
        assert!(!card.places(&Card { host: 9, ..card })[0].ip().is_loopback());
    }
}
