//! All GPUs that this process can use.

mod lane;
mod memory;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use hetccl_core::{Datatype, Handle, MemoryType, Pool, ReductionOp, Region};

use slab::Slab;

use crate::driver::{Context, Driver, Event, Place, Stream};
use crate::error::Error;
use crate::ipc::{Exported, Exports, Imports};
use crate::kernels::{Change, Fold, Kernels, LoadedKernels, MapType};
use crate::marks::{Mark, Marks};
use crate::ring::{NoRing, RemoteRing, RemoteRings, Ring, RingName, SLOTS};
use crate::vendor::Vendor;
use lane::LaneState;
pub use lane::{Lane, Order};
pub use memory::Usage;

/// Allocations whose ranges are remembered.
const REMEMBERED: usize = 4096;

/// Looks at a word between two questions about its stream, which writes none when it has failed.
const LOOKS: u32 = 1 << 14;

/// Addresses that drivers are asked about only once.
const MOST_RECENT: usize = 32;

/// Rings of a lane, where nothing else is said. They are pinned memory, and a few fill the way to the host.
const MOST_RINGS: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Active {
    lane: Lane,
    order: Order,
    mark: Mark,
    /// Work of the lane's own stream before the event.
    queued: u64,
}

/// The drivers of this process, and all work under way. See the [crate documentation](crate).
pub struct Gpus {
    drivers: Vec<Box<dyn Driver>>,
    lanes: Vec<LaneState>,
    active: Slab<Active>,
    /// First byte and length of allocations that were seen, by vendor and the driver's number.
    seen: HashMap<(Vendor, u64), (usize, usize)>,
    /// From the first to behind the last byte of all that was seen: most host memory lies outside.
    seen_span: Range<usize>,
    /// Addresses that were asked about since [`Gpus::begin_work`]; `None` where nobody calls that.
    recent: Option<Vec<(usize, Place)>>,
    exports: Exports,
    imports: Imports,
    remote_rings: RemoteRings,
    /// Rings of a lane.
    most_rings: usize,
    /// Most unused memory that is kept per lane, pinned and of the device each.
    keep_bytes: usize,
    ordered: bool,
    own_contexts: bool,
    loaded: LoadedKernels,
    /// Device memory in blocks, in use or kept.
    device_bytes: Arc<AtomicUsize>,
    usage: Usage,
}

impl Gpus {
    /// Every driver that can be used here, and why the others can't.
    pub fn discover(keep_bytes: usize) -> (Gpus, Vec<(Vendor, Error)>) {
        let mut drivers: Vec<Box<dyn Driver>> = Vec::new();
        let mut missing = Vec::new();
        for &vendor in Vendor::ALL {
            match vendor.open() {
                Ok(driver) => drivers.push(driver),
                Err(error) => missing.push((vendor, error)),
            }
        }
        (Gpus::new(drivers, keep_bytes), missing)
    }

    /// These drivers.
    pub fn new(drivers: Vec<Box<dyn Driver>>, keep_bytes: usize) -> Gpus {
        Gpus {
            drivers,
            lanes: Vec::new(),
            active: Slab::new(),
            seen: HashMap::new(),
            seen_span: 0..0,
            recent: None,
            exports: Exports::default(),
            imports: Imports::default(),
            remote_rings: RemoteRings::default(),
            most_rings: MOST_RINGS,
            keep_bytes,
            ordered: false,
            own_contexts: false,
            loaded: LoadedKernels::default(),
            device_bytes: Arc::default(),
            usage: Usage::default(),
        }
    }

    /// At most so many rings, of which each is pinned memory of [`SLOTS`] pieces.
    #[must_use]
    pub fn with_most_rings(mut self, most_rings: usize) -> Gpus {
        self.most_rings = most_rings;
        self
    }

    /// Memory that was taken from drivers so far.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// A lane that is there already, if there is one.
    pub fn any_lane(&self) -> Option<Lane> {
        (!self.lanes.is_empty()).then_some(Lane(0))
    }

    /// Bytes of device memory in blocks, in use or kept, for other threads to read.
    pub fn device_bytes(&self) -> Arc<AtomicUsize> {
        self.device_bytes.clone()
    }

    /// The program's earlier work on buffers has finished before requests are started, and streams of the program may
    /// wait for requests: the default stream is left alone.
    #[must_use]
    pub fn ordered_by_caller(mut self) -> Gpus {
        self.ordered = true;
        self
    }

    /// All work is done in contexts of the library's own, where the vendor has such, and copies are kernels: what the program
    /// does in its contexts, such as loading code while a stream waits for the library, does not hold it up.
    #[must_use]
    pub fn in_own_contexts(mut self) -> Gpus {
        self.own_contexts = true;
        if self.drivers.iter().all(|driver| driver.has_own_contexts()) {
            self.loaded = LoadedKernels::of_own_contexts();
        }
        self
    }

    /// The lane of a device of the first driver.
    ///
    /// # Errors
    /// No driver, or a failed call.
    pub fn lane_on(&mut self, device: u32) -> Result<Lane, Error> {
        let driver = self.drivers.first().ok_or(Error::NotDevice { address: 0 })?;
        let context = driver.context(device)?;
        self.lane_in(0, device, context)
    }

    /// The context that a lane works in.
    pub fn context(&self, lane: Lane) -> Context {
        self.lanes[lane.0].context
    }

    /// Places that are asked about from here on stay where they are until this is called again: drivers need not be asked
    /// more than once.
    pub fn begin_work(&mut self) {
        self.recent.get_or_insert_default().clear();
    }

    /// Kernels that other threads load as well.
    pub fn loaded_kernels(&self) -> LoadedKernels {
        self.loaded.clone()
    }

    /// The drivers, for reports.
    pub fn drivers(&self) -> &[Box<dyn Driver>] {
        &self.drivers
    }

    /// Whether there is no GPU.
    pub fn is_empty(&self) -> bool {
        self.drivers.is_empty()
    }

    /// Where an address lives; `None` for host memory.
    ///
    /// The drivers are asked each time, with one call, because memory may have been freed and its addresses used again,
    /// unless the caller has said that it isn't ([`Gpus::begin_work`]).
    ///
    /// # Errors
    /// [`Error::NotDevice`] for an address that was device memory, is no longer, and can't be read.
    pub fn locate(&mut self, address: usize) -> Result<Option<Place>, Error> {
        let recent = self.recent.iter().flatten().find(|(of, _)| *of == address);
        if let Some((_, place)) = recent {
            return Ok(Some(*place));
        }
        let found = self.drivers.iter().find_map(|d| d.locate(address).map(|p| (d.vendor(), p)));
        let Some((vendor, place)) = found else {
            return if self.was_device(address) && !readable(address) {
                Err(Error::NotDevice { address })
            } else {
                Ok(None)
            };
        };
        if !self.seen.contains_key(&(vendor, place.allocation)) {
            self.remember(vendor, &place, address);
        }
        if let Some(recent) = self.recent.as_mut().filter(|recent| recent.len() < MOST_RECENT) {
            recent.push((address, place));
        }
        Ok(Some(place))
    }

    /// The kind of memory at an address.
    ///
    /// # Errors
    /// As [`locate`](Gpus::locate).
    pub fn memory(&mut self, address: usize) -> Result<MemoryType, Error> {
        Ok(self.locate(address)?.map_or(MemoryType::Host, |place| place.memory))
    }

    fn remember(&mut self, vendor: Vendor, place: &Place, address: usize) {
        if self.seen.len() >= REMEMBERED {
            self.seen.clear();
        }
        let driver = self.drivers.iter().find(|d| d.vendor() == vendor);
        if let Some(Ok((base, len))) = driver.map(|d| d.allocation(place.context, address)) {
            self.seen.insert((vendor, place.allocation), (base, len));
            self.seen_span = match self.seen_span.clone() {
                span if span.is_empty() => base..base + len,
                span => span.start.min(base)..span.end.max(base + len),
            };
        }
    }

    fn was_device(&self, address: usize) -> bool {
        self.seen_span.contains(&address)
            && self.seen.values().any(|&(base, len)| (base..base + len).contains(&address))
    }

    /// The lane for a device region.
    ///
    /// # Errors
    /// [`Error::NotDevice`], or a failed call at the first use of a context.
    pub fn lane(&mut self, region: Region) -> Result<Lane, Error> {
        let address = region.address.0;
        let place = self.locate(address)?.ok_or(Error::NotDevice { address })?;
        let vendor = Vendor::of(place.memory);
        let driver = self
            .drivers
            .iter()
            .position(|d| Some(d.vendor()) == vendor)
            .ok_or(Error::NotDevice { address })?;
        self.lane_in(driver, place.device, place.context)
    }

    /// The lane for a device's memory that belongs to a context.
    fn lane_in(&mut self, driver: usize, device: u32, context: Context) -> Result<Lane, Error> {
        let own = if self.own_contexts { self.drivers[driver].own_context(device)? } else { None };
        let context = own.unwrap_or(context);
        let known =
            self.lanes.iter().position(|lane| lane.context == context && lane.driver == driver);
        match known {
            Some(index) => Ok(Lane(index)),
            None => self.make_lane(driver, device, context, own.is_some()),
        }
    }

    fn make_lane(
        &mut self,
        index: usize,
        device: u32,
        context: Context,
        is_own: bool,
    ) -> Result<Lane, Error> {
        let driver = &*self.drivers[index];
        let mut kernels = Kernels::sharing(self.loaded.clone());
        let marks = match is_own {
            true => {
                // Copies are kernels here.
                kernels.copy_function(driver, context)?;
                Some(Marks::new(driver, context)?)
            }
            false => None,
        };
        self.lanes.push(LaneState {
            driver: index,
            context,
            stream: driver.stream(context)?,
            idle_events: Vec::new(),
            to_host: driver.stream(context)?,
            from_host: driver.stream(context)?,
            library: None,
            pinned: Pool::default(),
            device: Pool::default(),
            rings: Vec::new(),
            made_rings: 0,
            kernels,
            memory: driver.vendor().memory(),
            device_number: device,
            ordered: self.ordered,
            marks,
            queued: 0,
            finished: 0,
        });
        Ok(Lane(self.lanes.len() - 1))
    }

    /// The lane's stream for collectives of the vendor's library ([`Order::Library`]), made to wait for what was queued so far as
    /// [`Order::Own`].
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn library_stream(&mut self, lane: Lane) -> Result<Stream, Error> {
        let event = self.idle_event(lane)?;
        let state = &mut self.lanes[lane.0];
        let driver = &self.drivers[state.driver];
        let stream = match state.library {
            Some(stream) => stream,
            None => *state.library.insert(driver.stream(state.context)?),
        };
        driver.record(state.context, event, state.stream)?;
        let waits = driver.wait(state.context, stream, event);
        // A stream waits for what the event marks when it is told to.
        state.idle_events.push(event);
        waits.map(|()| stream)
    }

    /// Starts `into = from`; at least one of them is memory of the lane's device, the other may be host memory. Host
    /// memory that is not pinned may be copied before this returns.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn copy(
        &mut self,
        lane: Lane,
        order: Order,
        from: Region,
        into: Region,
    ) -> Result<Handle, Error> {
        self.queue_copy(lane, order, from, into)?;
        self.mark(lane, order)
    }

    /// As [`copy`](Gpus::copy), without a handle of its own: [`mark`](Gpus::mark) gives one for all queued so far.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn queue_copy(
        &mut self,
        lane: Lane,
        order: Order,
        from: Region,
        into: Region,
    ) -> Result<(), Error> {
        debug_assert_eq!(from.len_bytes, into.len_bytes);
        let state = &mut self.lanes[lane.0];
        let stream = state.stream(order);
        state.queued += u64::from(stream == state.stream);
        let driver = &*self.drivers[state.driver];
        if state.marks.is_some() {
            for host in [from, into].into_iter().filter(|end| end.memory == MemoryType::Host) {
                if !driver.is_pinned(host.address.0) {
                    return Err(Error::NotPinned { address: host.address.0 });
                }
            }
            let place = (state.context, stream);
            let (from, into, len_bytes) = (from.address.0, into.address.0, from.len_bytes);
            return state.kernels.copy(driver, place, from, into, len_bytes);
        }
        driver.copy(state.context, stream, from.address.0, into.address.0, from.len_bytes)
    }

    /// Lets later work of [`Order::Own`] wait for what the program has queued so far, on the default stream and on
    /// streams ordered with it. The handle says when that has finished; none where it has, which is known where the caller
    /// orders its work with the program's and nothing of its own is under way.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn after_application(&mut self, lane: Lane) -> Result<Option<Handle>, Error> {
        let state = &self.lanes[lane.0];
        if state.ordered {
            let busy = state.queued != state.finished;
            return busy.then(|| self.mark(lane, Order::Own)).transpose();
        }
        let handle = self.mark(lane, Order::AfterApplication)?;
        let state = &self.lanes[lane.0];
        if let Mark::Event(event) = self.active[handle.0 as usize].mark {
            self.drivers[state.driver].wait(state.context, state.stream, event)?;
        }
        Ok(Some(handle))
    }

    fn idle_event(&mut self, lane: Lane) -> Result<Event, Error> {
        let state = &mut self.lanes[lane.0];
        match state.idle_events.pop() {
            Some(event) => Ok(event),
            None => self.drivers[state.driver].event(state.context),
        }
    }

    /// A handle for everything queued so far in the same order.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn mark(&mut self, lane: Lane, order: Order) -> Result<Handle, Error> {
        let mark = match &mut self.lanes[lane.0].marks {
            Some(marks) => marks.next(order),
            None => Mark::Event(self.idle_event(lane)?),
        };
        let state = &self.lanes[lane.0];
        let (driver, stream) = (&self.drivers[state.driver], state.stream(order));
        mark.queue(&**driver, state.context, stream)?;
        let queued = if stream == state.stream { state.queued } else { 0 };
        Ok(Handle(self.active.insert(Active { lane, order, mark, queued }) as u64))
    }

    /// Whether started work has finished. After `Ok(true)` or an error the handle is gone.
    ///
    /// # Errors
    /// [`Error::Call`]: the work, or work before it on the same device, failed.
    pub fn test(&mut self, handle: Handle) -> Result<bool, Error> {
        let index = handle.0 as usize;
        let Some(Active { lane, order, mark, queued }) = self.active.get_mut(index) else {
            return Ok(true);
        };
        let state = &mut self.lanes[lane.0];
        let driver = &self.drivers[state.driver];
        let mut finished = mark.is_reached(&**driver, state.context);
        if let (Mark::Word { looks, .. }, Ok(false)) = (&mut *mark, &finished) {
            *looks = (*looks + 1) % LOOKS;
            if *looks == 0 {
                let checked = driver.check_stream(state.context, state.stream(*order));
                finished = checked.map(|()| false);
            }
        }
        if !matches!(finished, Ok(false)) {
            state.finished = state.finished.max(*queued);
            if let Mark::Event(event) = mark {
                state.idle_events.push(*event);
            }
            self.active.remove(index);
        }
        finished
    }

    /// Waits for started work.
    ///
    /// # Errors
    /// As [`test`](Gpus::test).
    pub fn finish(&mut self, handle: Handle) -> Result<(), Error> {
        while !self.test(handle)? {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// `into = from` at once, after the program's work on either, whatever memory they are.
    ///
    /// # Errors
    /// [`Error::NotDevice`] or [`Error::Call`].
    pub fn copy_now(&mut self, from: Region, into: Region) -> Result<(), Error> {
        let near = if from.memory == MemoryType::Host { into } else { from };
        let lane = self.lane(near)?;
        let handle = self.copy(lane, Order::AfterApplication, from, into)?;
        self.finish(handle)
    }

    /// Whether the lane's device has a kernel for an operation.
    pub fn can_reduce(&mut self, lane: Lane, op: ReductionOp, datatype: Datatype) -> bool {
        let state = &mut self.lanes[lane.0];
        let driver = &*self.drivers[state.driver];
        state.kernels.function(driver, state.context, op, datatype).is_ok()
    }

    /// Starts `into = left op right` over `count` elements, all in memory of the lane's device. `into` may be one of the
    /// operands.
    ///
    /// # Errors
    /// [`Error::Call`], or no kernels for this device.
    pub fn reduce(
        &mut self,
        lane: Lane,
        reduction: (ReductionOp, Datatype),
        [left, right, into]: [Region; 3],
        count: usize,
    ) -> Result<Handle, Error> {
        let inputs = [left.address.0, right.address.0];
        let (op, datatype) = reduction;
        let fold = Fold { op, datatype, divisor: None };
        self.queue_reduce(lane, fold, &inputs, into.address.0, count)?;
        self.mark(lane, Order::Own)
    }

    /// Queues `into = inputs[0] op inputs[1] op ...` over `count` elements at these addresses. `into` may be one of the
    /// first [`MOST_INPUTS`](crate::MOST_INPUTS) inputs.
    ///
    /// # Errors
    /// [`Error::Call`], or no kernels for this device.
    pub fn queue_reduce(
        &mut self,
        lane: Lane,
        fold: Fold,
        inputs: &[usize],
        into: usize,
        count: usize,
    ) -> Result<(), Error> {
        let state = &mut self.lanes[lane.0];
        let driver = &*self.drivers[state.driver];
        let place = (state.context, state.stream);
        state.queued += 1;
        state.kernels.launch(driver, place, fold, inputs, into, count)
    }

    /// What another process of this host needs to reach a device region: `None` where its memory can't be shared.
    ///
    /// # Errors
    /// [`Error::NotDevice`].
    pub fn export(&mut self, region: Region) -> Result<Option<Exported>, Error> {
        let address = region.address.0;
        let place = self.locate(address)?.ok_or(Error::NotDevice { address })?;
        let Some(vendor) = Vendor::of(place.memory) else { return Ok(None) };
        let Some(driver) = self.drivers.iter().find(|d| d.vendor() == vendor) else {
            return Ok(None);
        };
        Ok(self.exports.get(&**driver, &place, address))
    }

    /// Where another process's memory is here, for copies of the lane; `None` where it can't be reached.
    pub fn import(&mut self, lane: Lane, exported: &Exported) -> Option<usize> {
        let state = &self.lanes[lane.0];
        let driver = &*self.drivers[state.driver];
        if state.marks.is_some() && exported.pid == std::process::id() {
            // Kernels reach another device only where somebody has seen to it, as opening a handle does.
            let address = (exported.base + exported.offset) as usize;
            driver.locate(address).filter(|place| place.device == state.device_number)?;
        }
        self.imports.get(driver, state.context, exported)
    }

    /// A ring for a message from the lane's device to another process of this host.
    ///
    /// # Errors
    /// [`NoRing::Busy`] when all are in use, [`NoRing::Impossible`] when there can be none.
    pub fn take_ring(&mut self, lane: Lane, slot_bytes: usize) -> Result<Ring, NoRing> {
        let state = &mut self.lanes[lane.0];
        if let Some(ring) = state.rings.pop() {
            return Ok(ring);
        }
        if state.made_rings == self.most_rings {
            return Err(NoRing::Busy);
        }
        match Ring::new(&*self.drivers[state.driver], state.context, lane, slot_bytes) {
            Ok(ring) => {
                state.made_rings += 1;
                self.usage.pin(SLOTS * ring.slot_bytes());
                Ok(ring)
            }
            Err(_) if state.made_rings > 0 => Err(NoRing::Busy),
            Err(_) => Err(NoRing::Impossible),
        }
    }

    /// Takes a ring back that nothing under way uses, here or at the receiver.
    pub fn put_ring(&mut self, ring: Ring) {
        self.lanes[ring.lane.0].rings.push(ring);
    }

    /// Notes that a ring is lost: the receiver may still read it.
    pub fn lose_ring(&mut self, ring: Ring) {
        self.lanes[ring.lane.0].made_rings -= 1;
        std::mem::forget(ring);
    }

    /// Another process's ring, for copies of the lane or, without one, of the CPU; `None` where it can't be reached.
    pub fn open_ring(&mut self, name: &RingName, lane: Option<Lane>) -> Option<RemoteRing> {
        let Gpus { lanes, drivers, remote_rings, .. } = self;
        let device = lane.map(|lane| {
            let state = &lanes[lane.0];
            (lane, &*drivers[state.driver], state.context)
        });
        remote_rings.open(name, device, &mut |lane, address| {
            let state = &lanes[lane.0];
            drivers[state.driver].unpin(state.context, address);
        })
    }

    /// Notes that the message in another process's ring is over.
    pub fn close_ring(&mut self, ring: &RemoteRing) {
        self.remote_rings.release(ring);
    }

    /// Whose devices this process works on: those of the first driver that has any.
    pub fn maker(&self) -> hetccl_core::topology::Vendor {
        let with_devices = self.drivers.iter().find(|driver| driver.devices() > 0);
        with_devices.map_or_else(Default::default, |driver| driver.vendor().maker())
    }

    /// A number for the one device that this process can use, the same in every process of this host that can use only
    /// that one; `None` where there are several or none.
    pub fn only_device(&self) -> Option<u64> {
        let [driver] = &self.drivers[..] else { return None };
        if driver.devices() != 1 {
            return None;
        }
        device_number(&**driver, 0).ok()
    }

    /// Whether the lane's device has the kernel of a change; loads it.
    pub fn can_map(&mut self, lane: Lane, change: Change, datatype: MapType) -> bool {
        let state = &mut self.lanes[lane.0];
        let driver = &*self.drivers[state.driver];
        state.kernels.change(driver, state.context, change, datatype).is_ok()
    }

    /// Queues `into[i] = change(from[i])` over `count` elements in memory of the lane's device; they may be the same.
    ///
    /// # Errors
    /// [`Error::Call`], or no kernels for this device.
    pub fn queue_map(
        &mut self,
        lane: Lane,
        (change, datatype): (Change, MapType),
        from: usize,
        into: usize,
        count: usize,
    ) -> Result<(), Error> {
        let state = &mut self.lanes[lane.0];
        let driver = &*self.drivers[state.driver];
        let place = (state.context, state.stream);
        state.queued += 1;
        state.kernels.map(driver, place, (change, datatype), from, into, count)
    }
}

impl Drop for Gpus {
    fn drop(&mut self) {
        let Gpus { lanes, drivers, remote_rings, .. } = self;
        remote_rings.close_all(&mut |lane, address| {
            let state = &lanes[lane.0];
            drivers[state.driver].unpin(state.context, address);
        });
        for state in &mut self.lanes {
            let driver = &self.drivers[state.driver];
            for ring in state.rings.drain(..) {
                ring.unpin(&**driver, state.context);
            }
            if state.ordered {
                if !state.ends_soon(&**driver) {
                    // What is still written to is lost.
                    drop((state.pinned.drain(), state.device.drain()));
                } else if let Some(marks) = &state.marks {
                    marks.give_back(state.context);
                }
            }
        }
        self.trim();
    }
}

/// A number for a device that is the same in every process of this host that sees it.
///
/// # Errors
/// [`Error::Call`].
pub fn device_number(driver: &dyn Driver, device: u32) -> Result<u64, Error> {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::hash::DefaultHasher::new();
    (crate::ipc::host_id(), driver.vendor(), driver.info(device)?.uuid).hash(&mut hasher);
    Ok(hasher.finish())
}

/// Whether this process can read a byte there, asked of the kernel, which refuses instead of faulting. Where it may not be
/// asked, the answer is yes.
fn readable(address: usize) -> bool {
    let mut byte = 0u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote =
        libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(address), iov_len: 1 };
    // SAFETY: one byte from this process's own memory, or an error.
    let read = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    read == 1 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_can_be_asked_for() {
        let there = 1u8;
        assert!(readable((&raw const there).expose_provenance()));
        assert!(!readable(8));
    }

    #[test]
    fn without_drivers_everything_is_host_memory() {
        let mut gpus = Gpus::new(Vec::new(), 0);
        assert!(gpus.is_empty());
        assert_eq!(gpus.memory((&raw const gpus).expose_provenance()), Ok(MemoryType::Host));
    }
}
