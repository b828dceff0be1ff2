//! Which wire a communicator gets, and the addresses that UCX needs.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError};

use hetccl_core::topology::{Identity, Vendor, digest_of};
use hetccl_core::{Rank, TransportError};
use hetccl_mca::{
    CommunicatorRef, PmlTransport, ProcessName, allowed_in_coll, coll_verbose, modex_get, my_name,
    pml_name, survives_failures,
};
use hetccl_runtime::gpu::{Gpus, host_id};
use hetccl_runtime::ucx::{Channel, Fabric, FabricParams, Library, PROCESS_BYTES, Process};
use hetccl_runtime::watch::Member;
use hetccl_runtime::{GpuPath, Settings, TransportChoice, Wire};

use crate::agreement::{self, Ballot};
use crate::state::{Plugin, Verbosity};

/// Under this key each process publishes what others must know of it.
pub(crate) const ADDRESS_KEY: &CStr = c"hetccl.process.5";

/// Open MPI's component with agreements that survive failed processes.
const AGREEMENTS: &CStr = c"ftagree";

/// A UCX address follows.
const HAS_ADDRESS: u8 = 1;
/// The process has a GPU.
const HAS_GPU: u8 = 2;
/// UCX takes the device memory of the process as it is.
const DIRECT: u8 = 4;

/// Bytes before the UCX address: flags, vendor, the number of the only device (0 where there is none), the node, the process,
/// the descriptor of its journal, its host's name.
const HEAD_BYTES: usize = HOST_AT + HOST_BYTES;
const PROCESS_AT: usize = 18;
const JOURNAL_AT: usize = PROCESS_AT + PROCESS_BYTES;
const HOST_AT: usize = JOURNAL_AT + 4;
const HOST_BYTES: usize = 64;

/// What is published: flags, where and what the process is, and the UCX address if there is one.
pub(crate) fn publish(
    address: &[u8],
    has_gpus: bool,
    direct: bool,
    gpus: &Gpus,
    journal: i32,
) -> Vec<u8> {
    let mut flags = 0;
    if !address.is_empty() {
        flags |= HAS_ADDRESS;
    }
    if has_gpus {
        flags |= HAS_GPU;
    }
    if direct {
        flags |= DIRECT;
    }
    let mut bytes = vec![flags, gpus.maker() as u8];
    bytes.extend_from_slice(&gpus.only_device().unwrap_or(0).to_le_bytes());
    bytes.extend_from_slice(&node_id().to_le_bytes());
    bytes.extend_from_slice(&Process::this().encode());
    bytes.extend_from_slice(&journal.to_le_bytes());
    let mut host = [0; HOST_BYTES];
    let name = host_name();
    let len = name.len().min(HOST_BYTES);
    host[..len].copy_from_slice(&name.as_bytes()[..len]);
    bytes.extend_from_slice(&host);
    bytes.extend_from_slice(address);
    bytes
}

/// A number for this node: its kernel's, and its name's, since containers with hosts' names of their own are to be nodes.
fn node_id() -> u64 {
    let name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    host_id() ^ digest_of(&name)
}

/// This host's name.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// What the members of a communicator have published of their processes.
pub(crate) fn members(comm: CommunicatorRef) -> Vec<Member> {
    (0..comm.group().len())
        .map(|rank| {
            let published = published_by(comm.peer(rank, false)).unwrap_or_default();
            member(&published).unwrap_or_else(|| Member {
                process: Process::default(),
                journal: -1,
                host: String::new(),
            })
        })
        .collect()
}

fn member(published: &[u8]) -> Option<Member> {
    let (process, _) = Process::decode(published.get(PROCESS_AT..)?)?;
    let journal = i32::from_le_bytes(*published.get(JOURNAL_AT..)?.first_chunk()?);
    let host = published.get(HOST_AT..HEAD_BYTES)?;
    let host = host.split(|&byte| byte == 0).next().unwrap_or_default();
    let host = String::from_utf8_lossy(host).chars().filter(|c| !c.is_control()).collect();
    Some(Member { process, journal, host })
}

/// UCX, and this process's address in it.
///
/// # Errors
/// Why it can't be used here, and what to do.
pub(crate) fn start_ucx() -> Result<(Fabric, Vec<u8>), String> {
    // SAFETY: in MPI_Init, where a program has one thread that touches the environment.
    let library = unsafe { Library::load() }.map_err(|error| error.to_string())?;
    let params = FabricParams { remote_memory: false, ..FabricParams::default() };
    let fabric = Fabric::open(library, &params).map_err(|error| error.to_string())?;
    let address = fabric.address().to_vec();
    Ok((fabric, address))
}

/// What a communicator gets; the same on all its ranks.
pub(crate) struct Choice {
    pub(crate) wire: Wire,
    /// Some rank may have device memory.
    pub(crate) any_memory: bool,
    /// UCX takes the device memory of all ranks as it is.
    pub(crate) direct: bool,
    /// All ranks use one device.
    pub(crate) one_device: bool,
    /// Where the ranks are, by rank, if that may decide how collectives go.
    pub(crate) identities: Vec<Identity>,
}

/// The wire for a new communicator; every rank of it calls this at the same time.
///
/// # Errors
/// An MPI error class, when the ranks differ or UCX was demanded and can't be had; the user has been told.
pub(crate) fn choose(comm: CommunicatorRef) -> Result<Choice, i32> {
    let plugin = Plugin::get();
    let group = comm.group();
    if comm.is_world() {
        demand_agreements(comm)?;
        let agreed = agree_in_world(plugin, comm)?;
        let _ = plugin.job_uses_ucx.set(agreed.ucx);
        let _ = plugin.job_has_gpus.set(!agreed.no_gpus);
        let _ = plugin.job_is_direct.set(agreed.direct);
    }
    if group.remote_size.is_none() && group.len() == 1 {
        let any_memory = plugin.has_gpus();
        return Ok(Choice {
            wire: Wire::Alone,
            any_memory,
            direct: false,
            one_device: false,
            identities: Vec::new(),
        });
    }
    // A program may have nothing but communicators of MPI sessions: then there never was a MPI_COMM_WORLD to agree in.
    let agreed = plugin.job_uses_ucx.get().is_some();
    let mut use_ucx = plugin.job_uses_ucx.get().copied().unwrap_or(false);
    let mut any_memory = plugin.job_has_gpus.get().copied().unwrap_or(false);
    let mut direct = plugin.job_is_direct.get().copied().unwrap_or(false);
    if !agreed || comm.reaches_other_jobs(my_name().job()) {
        // Open MPI may be in the middle of its own progress here, so nobody waits for messages: what each process has
        // published is the same for all.
        let everybody: Vec<Published> = published(comm).collect();
        use_ucx = everybody.iter().all(|process| process.flags & HAS_ADDRESS != 0);
        any_memory = everybody.iter().any(|process| process.flags & HAS_GPU != 0);
        direct = everybody.iter().all(|process| process.flags & DIRECT != 0);
    }
    // UCX tells communicators apart by a number that all their ranks have in common; and only Open MPI's own messages end
    // when a process fails or a communicator is revoked.
    use_ucx &= comm.context_is_global() && !survives_failures();
    // What the others have published is only looked at where it can matter.
    let one_device = any_memory
        && group.remote_size.is_none()
        && plugin.settings.gpu_path == GpuPath::Auto
        && all_equal(published(comm).map(|process| process.identity.device));
    let groups = group.remote_size.is_none()
        && plugin.settings.may_group()
        && (any_memory || plugin.settings.demands_groups());
    let identities = match groups {
        true => published(comm).map(|process| process.identity).collect(),
        false => Vec::new(),
    };
    let wire =
        if use_ucx { ucx_wire(comm)? } else { Wire::Foreign(Box::new(PmlTransport::new(comm))) };
    Ok(Choice { wire, any_memory, direct, one_device, identities })
}

/// Jobs that survive failed processes need agreements that do, which are a component of Open MPI's own.
fn demand_agreements(comm: CommunicatorRef) -> Result<(), i32> {
    if !survives_failures() || allowed_in_coll(AGREEMENTS) {
        return Ok(());
    }
    if comm.group().rank == Rank(0) {
        let text = "Fault tolerance is on (mpirun --with-ft ulfm), and hetccl has no agreement of its own that survives \
                    failed processes. Name Open MPI's beside it: --mca coll hetccl,ftagree";
        hetccl_mca::show_error("hetccl: fault tolerance needs ftagree", text);
    }
    Err(hetccl_mca::sys::OMPI_ERR_NOT_SUPPORTED)
}

/// Whether all are the same device.
fn all_equal(mut devices: impl Iterator<Item = u64>) -> bool {
    match devices.next() {
        None | Some(0) => false,
        Some(first) => devices.all(|device| device == first),
    }
}

/// What a process published. That of this job's processes is asked for once: Open MPI 5 does not give back all the memory of
/// the answer, and communicators come and go.
fn published_by(peer: ProcessName) -> Result<Arc<[u8]>, i32> {
    static KNOWN: Mutex<BTreeMap<u64, Arc<[u8]>>> = Mutex::new(BTreeMap::new());
    if peer.job() != my_name().job() {
        return modex_get(peer, ADDRESS_KEY).map(Arc::from);
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(published) = known.get(&peer.0) {
        return Ok(published.clone());
    }
    let published: Arc<[u8]> = modex_get(peer, ADDRESS_KEY)?.into();
    known.insert(peer.0, published.clone());
    Ok(published)
}

/// What a process has published, without its address. Nothing where it could not be read.
struct Published {
    flags: u8,
    identity: Identity,
}

impl Published {
    fn from_bytes(bytes: &[u8]) -> Published {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        if bytes.len() < HEAD_BYTES {
            let identity = Identity { node: 0, vendor: Vendor::Host, device: 0 };
            return Published { flags: 0, identity };
        }
        let vendor = Vendor::from_number(bytes[1]).unwrap_or_default();
        Published {
            flags: bytes[0],
            identity: Identity { node: word(10), vendor, device: word(2) },
        }
    }
}

/// What every process of a communicator has published, in both groups.
fn published(comm: CommunicatorRef) -> impl Iterator<Item = Published> {
    let group = comm.group();
    let local = (0..group.len()).map(|rank| (rank, false));
    let remote = (0..group.remote_len()).map(|rank| (rank, true));
    local.chain(remote).map(move |(rank, remote)| {
        let bytes = published_by(comm.peer(rank, remote));
        Published::from_bytes(bytes.as_deref().unwrap_or_default())
    })
}

/// All ranks of the job: can everybody use UCX, has nobody a GPU, and is everybody's hetccl the same?
fn agree_in_world(plugin: &Plugin, comm: CommunicatorRef) -> Result<Ballot, i32> {
    let trouble = plugin.ucx_trouble.get().cloned().flatten();
    let no_direct = plugin.direct_trouble.get().cloned().flatten();
    let ballot =
        Ballot::new(trouble.is_none(), !plugin.has_gpus(), no_direct.is_none(), digest(plugin));
    let result = agreement::agree(comm, ballot)?;
    if !result.same {
        let text = format!(
            "The ranks of this job run different versions of hetccl ({} here) or have different coll_hetccl \
             parameters. Install the same version on all hosts and give parameters with mpirun --mca, which \
             passes them to all ranks.",
            env!("CARGO_PKG_VERSION")
        );
        hetccl_mca::show_error("hetccl: the ranks differ", &text);
        return Err(hetccl_mca::sys::OMPI_ERR_BAD_PARAM);
    }
    if survives_failures() && plugin.settings.transport == TransportChoice::Ucx {
        if comm.group().rank == Rank(0) {
            let text = "coll_hetccl_transport is ucx, and fault tolerance is on (mpirun --with-ft ulfm): only Open MPI's own \
                        messages end when a process fails. Let coll_hetccl_transport be auto or pml.";
            hetccl_mca::show_error("hetccl: UCX was demanded with fault tolerance", text);
        }
        return Err(hetccl_mca::sys::OMPI_ERR_NOT_SUPPORTED);
    }
    if !result.ucx && plugin.settings.transport == TransportChoice::Ucx {
        report_no_ucx(comm, trouble.as_deref());
        return Err(hetccl_mca::sys::OMPI_ERR_NOT_AVAILABLE);
    }
    tell_wire(plugin, comm, result.ucx, trouble.as_deref());
    if !result.no_gpus {
        tell_device_path(plugin, comm, result.direct, no_direct.as_deref());
    }
    Ok(result)
}

fn report_no_ucx(comm: CommunicatorRef, trouble: Option<&str>) {
    let rank = comm.group().rank;
    let (here, next) = match trouble {
        Some(why) => {
            (why, "Install UCX (Debian: libucx0), or let coll_hetccl_transport be auto or pml.")
        }
        // The ranks where it is say nothing: those where it is not do.
        None => return,
    };
    let text = format!(
        "coll_hetccl_transport is ucx, and UCX can't be used on rank {rank} of MPI_COMM_WORLD: {here}.\n{next}"
    );
    hetccl_mca::show_error("hetccl: UCX was demanded and is not available", &text);
}

/// One line, on rank 0, for those who asked.
fn tell_wire(plugin: &Plugin, comm: CommunicatorRef, ucx: bool, trouble: Option<&str>) {
    if comm.group().rank != Rank(0) {
        return;
    }
    let line = if survives_failures() {
        format!("messages go over pml ({}): fault tolerance is on", pml_name())
    } else if ucx {
        "messages go over ucx: every rank can use it".to_owned()
    } else {
        let why = trouble.unwrap_or("another rank can't use UCX");
        format!("messages go over pml ({}), not ucx: {why}", pml_name())
    };
    if plugin.verbosity >= Verbosity::WIRE {
        hetccl_mca::tell(&line);
    }
    coll_verbose(1, &format!("hetccl: {line}"));
}

/// One line on how device memory travels between ranks, on rank 0, for those who asked.
fn tell_device_path(plugin: &Plugin, comm: CommunicatorRef, direct: bool, trouble: Option<&str>) {
    if comm.group().rank != Rank(0) {
        return;
    }
    let elsewhere = if direct {
        "by UCX, which reaches the device memory of every rank".to_owned()
    } else {
        let why = trouble.unwrap_or("UCX can't reach the device memory of another rank");
        format!("through pinned host memory, not by UCX: {why}")
    };
    let line = match plugin.settings.gpu_path {
        GpuPath::Auto => format!(
            "large device buffers go by IPC handle between GPUs of one vendor in one host, elsewhere {elsewhere}"
        ),
        _ => format!("device buffers go {elsewhere}"),
    };
    if plugin.verbosity >= Verbosity::WIRE {
        hetccl_mca::tell(&line);
    }
    coll_verbose(1, &format!("hetccl: {line}"));
}

/// What must be equal on all ranks: version and settings.
fn digest(plugin: &Plugin) -> u64 {
    // FNV-1a; only equality matters.
    // How long this rank waits before it complains is its own affair.
    let settings = Settings {
        stall_seconds: 0,
        peer_timeout_seconds: 0,
        wait_limit_seconds: 0,
        ..plugin.settings.clone()
    };
    let text = format!("{} {settings:?}", env!("CARGO_PKG_VERSION"));
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// # Errors
/// An MPI error class, when the communicator is larger than UCX tags can tell apart; the user has been told.
fn ucx_wire(comm: CommunicatorRef) -> Result<Wire, i32> {
    let resolve = move |rank: Rank| {
        let peer = comm.peer_of(rank);
        let published = published_by(peer).map_err(|status| TransportError::Unreachable {
            peer: rank,
            reason: format!(
                "it published no UCX address (status {status}); does it run hetccl too?"
            ),
        })?;
        match published.split_first() {
            Some((flags, _)) if flags & HAS_ADDRESS != 0 && published.len() > HEAD_BYTES => {
                Ok((peer.0, published[HEAD_BYTES..].to_vec()))
            }
            _ => Err(TransportError::Unreachable {
                peer: rank,
                reason: "it can't use UCX".to_owned(),
            }),
        }
    };
    match Channel::new(comm.context(), comm.group(), Box::new(resolve)) {
        Ok(channel) => Ok(Wire::Ucx(Box::new(channel))),
        Err(error) => {
            hetccl_mca::show_error("hetccl: a communicator can't use UCX", &error.to_string());
            Err(hetccl_mca::sys::OMPI_ERR_NOT_SUPPORTED)
        }
    }
}
