//! Making communicators: ranks meet, tell each other what they are, and start an engine each.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use hetccl_core::topology::{self, Identity};
use hetccl_core::{Datatype, Group, Rank, ReductionOp};
use hetccl_runtime::gpu::{self, Change, Driver, Gpus, Lane, Vendor};
use hetccl_runtime::{
    Communicator, GpuPath, HierarchyChoice, MessageCounts, Process, Settings, Wire,
};

use crate::abi::{Code, Element, UniqueId};
use crate::comm::{Device, Live};
use crate::delegate::Kept;
use crate::delegate::agree::{self, Wish};
use crate::delegate::inside;
use crate::engine::{Engine, Shared};
use crate::log::{self, Level};
use crate::meeting::{self, Meeting};
use crate::mesh::Link;
use crate::order::Words;
use crate::reducer::Float8Reducer;
use crate::weights::Weights;
use crate::{Failure, Library, settings, weights};

/// Changes when ranks of different builds could not talk.
const WIRE_VERSION: u32 = 5;

/// What a rank tells the others of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    version: u32,
    pub(crate) vendor: u8,
    /// Whether collectives go by vendor groups, as the rank's setting has it.
    pub(crate) hierarchy: u8,
    /// How device buffers reach each other, as the rank's setting has it.
    gpu_path: u8,
    /// Whether calls may go to the vendor's library.
    pub(crate) wish: Wish,
    /// Whether vendors' libraries may work inside their groups.
    pub(crate) group_library: u8,
    /// The same for all ranks on one device.
    pub(crate) device: u64,
    pub(crate) host: u64,
    /// The same for ranks that reach each other over the loopback interface.
    network: u64,
    /// How much the rank counts in averages.
    pub(crate) weight: u64,
}

/// Bytes of a card.
const CARD_BYTES: usize = 41;

impl Card {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(CARD_BYTES);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&[self.vendor, self.hierarchy, self.wish as u8, self.gpu_path]);
        bytes.push(self.group_library);
        for word in [self.device, self.host, self.network, self.weight] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
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
            wish: Wish::from_number(bytes[6]),
            gpu_path: bytes[7],
            group_library: bytes[8],
            device: word(9),
            host: word(17),
            network: word(25),
            weight: word(33),
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

    /// Whether the ranks share memory, and reach each other over the loopback interface.
    fn is_near(&self, other: &Card) -> bool {
        self.host == other.host && self.network == other.network
    }
}

/// A rank before it meets the others.
pub(crate) struct Seat {
    library: Library,
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

/// Describes this rank.
///
/// # Errors
/// Of the driver or the system.
pub(crate) fn sit(library: Library, device: Device) -> Result<Seat, Failure> {
    use std::hash::{Hash, Hasher};
    let driver = vendor(library).open()?;
    let mut hasher = std::hash::DefaultHasher::new();
    std::fs::read_link("/proc/self/ns/net").unwrap_or_default().hash(&mut hasher);
    let card = Card {
        version: WIRE_VERSION,
        vendor: driver.vendor() as u8,
        hierarchy: hierarchy()? as u8,
        gpu_path: gpu_path()? as u8,
        wish: Wish::own(),
        group_library: inside::setting()? as u8,
        device: gpu::device_number(&*driver, device.number)?,
        host: settings::variable("NCCL_HOSTID").map_or_else(gpu::host_id, |id| {
            let mut hasher = std::hash::DefaultHasher::new();
            id.hash(&mut hasher);
            hasher.finish()
        }),
        network: hasher.finish(),
        weight: weights::own(),
    };
    Ok(Seat { library, driver, device, card })
}

/// A new communicator.
pub(crate) enum Joined {
    /// hetccl's own.
    Own(Box<Live>),
    /// One of the vendor's library.
    Vendor(NonNull<c_void>),
}

/// Makes a rank of a new communicator with all that have the unique id, until `abandoned`: the program does not want it any
/// more.
///
/// # Errors
/// The ranks do not meet, or do not fit together.
pub(crate) fn join(
    library: Library,
    device: Device,
    ids: &[UniqueId],
    (rank, size): (usize, usize),
    config: Option<Kept>,
    abandoned: &AtomicBool,
) -> Result<Joined, Failure> {
    let begun = Instant::now();
    let seat = sit(library, device)?;
    let met = meeting::meet(ids, rank, size, abandoned)?;
    let joined = seat.take(rank, met, config, abandoned)?;
    log::line(
        Level::Info,
        &format!("rank {rank} of {size}: init took {:.1} ms", begun.elapsed().as_secs_f64() * 1e3),
    );
    Ok(joined)
}

impl Seat {
    /// Starts the rank with all that it has met: in the vendor's library where they agree on it, in an engine of hetccl's
    /// otherwise.
    ///
    /// # Errors
    /// Of either; ranks that do not fit together.
    pub(crate) fn take(
        self,
        rank: usize,
        met: Meeting,
        config: Option<Kept>,
        abandoned: &AtomicBool,
    ) -> Result<Joined, Failure> {
        let cards = met.gather(self.card.to_bytes())?;
        let cards = cards.iter().map(|bytes| Card::from_bytes(bytes));
        let cards = cards.collect::<Result<Vec<_>, _>>()?;
        let vendor_id = agree::agree(self.library, rank, &cards, |own| met.gather(own))?;
        let Some(id) = vendor_id else {
            let started = start(self, rank, &cards, met.clone(), abandoned);
            // The others would wait for this rank.
            let started = started.inspect_err(|failure| met.give_up(rank, &failure.text));
            return Ok(Joined::Own(Box::new(started?)));
        };
        // Nobody leaves before all have everything.
        met.part()?;
        self.driver.adopt(self.device.context)?;
        agree::join(self.library, id, rank, cards.len(), config, abandoned).map(Joined::Vendor)
    }
}

/// Starts a rank whose communicator has these cards, by rank, until `abandoned`.
///
/// # Errors
/// Ranks that do not fit together, the driver's or the system's.
pub(crate) fn start(
    seat: Seat,
    rank: usize,
    cards: &[Card],
    meeting: Meeting,
    abandoned: &AtomicBool,
) -> Result<Live, Failure> {
    let size = cards.len();
    let Seat { library, driver, device, card } = seat;
    if let Some(other) = cards.iter().position(|other| other.version != card.version) {
        return Err(Failure::usage(format!(
            "rank {other} has another version of hetccl: load the same everywhere"
        )));
    }
    let differs = |of: fn(&Card) -> u8| cards.iter().position(|other| of(other) != of(&card));
    let settings = [
        (HIERARCHY, differs(|card| card.hierarchy)),
        (GPU_PATH, differs(|card| card.gpu_path)),
        (inside::SETTING, differs(|card| card.group_library)),
    ];
    if let Some((name, other)) = settings.iter().find_map(|(name, other)| Some((name, (*other)?))) {
        return Err(Failure::usage(format!(
            "rank {other} has another {name}: set the same everywhere"
        )));
    }
    let all: Vec<u64> = cards.iter().map(|card| card.weight).collect();
    let weights = Weights::agree(rank, &all)?;
    let gpu_path = gpu_path()?;
    let one_device = size > 1
        && gpu_path == GpuPath::Auto
        && cards.iter().all(|other| other.device == card.device);
    if rank == 0 {
        settings::tell_ignored();
    }
    let settings = Settings {
        hierarchy: hierarchy()?,
        group_library: inside::setting()?,
        gpu_path,
        ..small(Settings::default())
    };
    let gpus = Gpus::new(vec![driver.vendor().open()?], settings.pinned_keep_bytes)
        .ordered_by_caller()
        .in_own_contexts()
        .with_most_rings(MOST_RINGS);
    let mut process = Process::new(settings, Box::new(Float8Reducer));
    process.use_gpus(gpus);
    let lane = warm(&*driver, device, &mut process)?;
    let context = process.gpus().context(lane);
    let inside = inside::Ranks { library, rank, cards, meeting: &meeting, abandoned }
        .agree(process.gpus(), lane)?;
    let (wire, link) = if size == 1 {
        (Wire::Alone, None)
    } else {
        let are_near: Vec<bool> = cards.iter().map(|other| card.is_near(other)).collect();
        let link = Link::new(rank, &are_near, meeting.clone());
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
    let shared = Arc::new(Shared::new(words, context, process.gpus().loaded_kernels()));
    let device_bytes = process.gpus().device_bytes();
    let engine = Engine {
        shared: shared.clone(),
        process,
        communicator,
        link,
        rank,
        size,
        messages: MessageCounts::of_program(),
        declined_in_a_row: 0,
        meeting: meeting.clone(),
        noticed: None,
        listening: None,
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
            } else if gpu_path == GpuPath::Staging {
                "messages over TCP, device memory through pinned host memory"
            } else {
                "messages over TCP, device memory by IPC inside a host"
            }
        ),
    );
    let mut live = Live::new(rank, size, shared, meeting, driver, thread);
    live.device_bytes = device_bytes;
    live.weights = weights;
    Ok(live)
}

/// Rings through which messages between devices pass, 4 MiB of pinned memory each.
const MOST_RINGS: usize = 2;

/// Settings with which a communicator needs little memory, whatever the length of messages: programs have many.
fn small(settings: Settings) -> Settings {
    Settings {
        gpu_chunk_bytes: 4 << 20,
        gpu_staging_bytes: 128 << 10,
        gpu_ring_bytes: 1 << 20,
        scratch_keep_bytes: 4 << 20,
        pinned_keep_bytes: 8 << 20,
        ..settings
    }
}

/// The environment variable that says whether collectives go by vendor groups.
const HIERARCHY: &str = "HETCCL_HIERARCHY";

/// What it says.
///
/// # Errors
/// A word that it does not know.
fn hierarchy() -> Result<HierarchyChoice, Failure> {
    word_of(HIERARCHY, HierarchyChoice::NAMES, HierarchyChoice::ALL)
}

/// The environment variable that says how device buffers reach each other.
const GPU_PATH: &str = "HETCCL_GPU_PATH";

/// What it says; messages of this library never go by UCX.
///
/// # Errors
/// As for [`hierarchy`].
fn gpu_path() -> Result<GpuPath, Failure> {
    word_of(GPU_PATH, &["auto", "staging"], &[GpuPath::Auto, GpuPath::Staging])
}

/// What a variable says, of `all` with these names; the default without it.
pub(crate) fn word_of<T: Copy + Default>(
    variable: &str,
    names: &[&str],
    all: &[T],
) -> Result<T, Failure> {
    let Ok(word) = std::env::var(variable) else { return Ok(T::default()) };
    let known = names.iter().position(|&name| name == word);
    known.map(|i| all[i]).ok_or_else(|| {
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

/// Makes ready what the first collective would otherwise make while streams are held back: the library's own context and
/// streams, and the kernels of the usual types. Returns the lane of the device.
fn warm(driver: &dyn Driver, device: Device, process: &mut Process) -> Result<Lane, Failure> {
    const USUAL: [Datatype; 4] =
        [Datatype::Float32, Datatype::Bfloat16, Datatype::Float16, Datatype::Float64];
    driver.adopt(device.context)?;
    // Where there is no kernel for it, recording a call in a graph says so.
    let _ = driver.prepare_graphs(device.context);
    let gpus = process.gpus();
    let lane = gpus.lane_on(device.number)?;
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
    Ok(lane)
}

#[cfg(test)]
impl Card {
    /// A card that says nothing in particular.
    pub(crate) fn for_tests() -> Card {
        Card {
            version: 1,
            vendor: 1,
            hierarchy: 2,
            gpu_path: 1,
            wish: Wish::Never,
            group_library: 0,
            device: 2,
            host: 3,
            network: 4,
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
        assert_eq!(card.to_bytes().len(), CARD_BYTES);
        assert_eq!(Card::from_bytes(&card.to_bytes()), Ok(card));
    }
}
