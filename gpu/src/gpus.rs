//! All GPUs that this process can use.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hetccl_core::{Datatype, Handle, MemoryType, Pool, ReductionOp, Region};

use slab::Slab;

use crate::block::Block;
use crate::driver::{Context, Driver, Event, Place, Stream};
use crate::error::Error;
use crate::ipc::{Exported, Exports, Imports};
use crate::kernels::{Change, Kernels, LoadedKernels, MapType};
use crate::ring::{NoRing, RemoteRing, RemoteRings, Ring, RingName};
use crate::vendor::Vendor;

/// Allocations whose ranges are remembered.
const REMEMBERED: usize = 4096;

/// Rings of a lane. They are pinned memory, and a few fill the way to the host.
const MOST_RINGS: usize = 4;

/// What a copy waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Everything that the program has queued on the default stream and on streams ordered with it.
    AfterApplication,
    /// Only what was queued here before, for the same device.
    Own,
    /// Only earlier copies from the device to host memory. Runs beside the others.
    ToHost,
    /// Only earlier copies from host memory to the device. Runs beside the others.
    FromHost,
    /// Only what was queued so before: collectives of the vendor's library, and copies around them. Runs beside the others; see
    /// [`Gpus::library_stream`].
    Library,
}

/// A context with a queue of the library's own in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane(pub(crate) usize);

#[derive(Debug)]
struct LaneState {
    driver: usize,
    context: Context,
    stream: Stream,
    /// For copies to and from host memory, which two engines of the device do at once.
    to_host: Stream,
    from_host: Stream,
    /// For the vendor's library; made when there is one.
    library: Option<Stream>,
    idle_events: Vec<Event>,
    /// Addresses of pinned memory and of device memory that is not in use.
    pinned: Pool<usize>,
    device: Pool<usize>,
    rings: Vec<Ring>,
    /// Rings in existence, in use or not.
    made_rings: usize,
    kernels: Kernels,
    memory: MemoryType,
    /// The caller orders its work with the program's; see [`Gpus::ordered_by_caller`].
    ordered: bool,
}

impl LaneState {
    fn stream(&self, order: Order) -> Stream {
        match order {
            Order::AfterApplication if !self.ordered => Stream::DEFAULT,
            Order::AfterApplication | Order::Own => self.stream,
            Order::ToHost => self.to_host,
            Order::FromHost => self.from_host,
            // Nothing is queued so before the stream is there.
            Order::Library => self.library.unwrap_or(self.stream),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Active {
    lane: Lane,
    event: Event,
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
    exports: Exports,
    imports: Imports,
    remote_rings: RemoteRings,
    /// Most unused memory that is kept per lane, pinned and of the device each.
    keep_bytes: usize,
    ordered: bool,
    loaded: LoadedKernels,
    /// Device memory in blocks, in use or kept.
    device_bytes: Arc<AtomicUsize>,
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
            exports: Exports::default(),
            imports: Imports::default(),
            remote_rings: RemoteRings::default(),
            keep_bytes,
            ordered: false,
            loaded: LoadedKernels::default(),
            device_bytes: Arc::default(),
        }
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
    /// The drivers are asked each time, with one call, because memory may have been freed and its addresses used again.
    ///
    /// # Errors
    /// [`Error::NotDevice`] for an address that was device memory, is no longer, and can't be read.
    pub fn locate(&mut self, address: usize) -> Result<Option<Place>, Error> {
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
        let vendor = Vendor::of(place.memory).ok_or(Error::NotDevice { address })?;
        self.lane_in(vendor, place.context)?.ok_or(Error::NotDevice { address })
    }

    /// The lane of a vendor's context; `None` where the vendor has no driver here.
    ///
    /// # Errors
    /// A failed call at the first use of a context.
    pub fn lane_in(&mut self, vendor: Vendor, context: Context) -> Result<Option<Lane>, Error> {
        let known = self.lanes.iter().position(|lane| {
            lane.context == context && self.drivers[lane.driver].vendor() == vendor
        });
        if let Some(index) = known {
            return Ok(Some(Lane(index)));
        }
        let Some(driver) = self.drivers.iter().position(|d| d.vendor() == vendor) else {
            return Ok(None);
        };
        let stream = || self.drivers[driver].stream(context);
        let (stream, to_host, from_host) = (stream()?, stream()?, stream()?);
        let memory = self.drivers[driver].vendor().memory();
        self.lanes.push(LaneState {
            driver,
            context,
            stream,
            idle_events: Vec::new(),
            to_host,
            from_host,
            library: None,
            pinned: Pool::default(),
            device: Pool::default(),
            rings: Vec::new(),
            made_rings: 0,
            kernels: Kernels::sharing(self.loaded.clone()),
            memory,
            ordered: self.ordered,
        });
        Ok(Some(Lane(self.lanes.len() - 1)))
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
        let state = &self.lanes[lane.0];
        let stream = state.stream(order);
        let driver = &self.drivers[state.driver];
        driver.copy(state.context, stream, from.address.0, into.address.0, from.len_bytes)
    }

    /// Lets later work of [`Order::Own`] wait for what the program has queued so far, on the default stream and on
    /// streams ordered with it. The handle says when that has finished.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn after_application(&mut self, lane: Lane) -> Result<Handle, Error> {
        let handle = self.mark(lane, Order::AfterApplication)?;
        let Active { event, .. } = self.active[handle.0 as usize];
        let state = &self.lanes[lane.0];
        self.drivers[state.driver].wait(state.context, state.stream, event)?;
        Ok(handle)
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
        let event = self.idle_event(lane)?;
        let state = &self.lanes[lane.0];
        self.drivers[state.driver].record(state.context, event, state.stream(order))?;
        Ok(Handle(self.active.insert(Active { lane, event }) as u64))
    }

    /// Whether started work has finished. After `Ok(true)` or an error the handle is gone.
    ///
    /// # Errors
    /// [`Error::Call`]: the work, or work before it on the same device, failed.
    pub fn test(&mut self, handle: Handle) -> Result<bool, Error> {
        let index = handle.0 as usize;
        let Some(&Active { lane, event }) = self.active.get(index) else {
            return Ok(true);
        };
        let state = &mut self.lanes[lane.0];
        let finished = self.drivers[state.driver].finished(state.context, event);
        if !matches!(finished, Ok(false)) {
            state.idle_events.push(event);
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
        self.queue_reduce(lane, reduction, &inputs, into.address.0, count)?;
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
        reduction: (ReductionOp, Datatype),
        inputs: &[usize],
        into: usize,
        count: usize,
    ) -> Result<(), Error> {
        let state = &mut self.lanes[lane.0];
        let driver = &*self.drivers[state.driver];
        let place = (state.context, state.stream);
        state.kernels.launch(driver, place, reduction, inputs, into, count)
    }

    /// Host memory that the lane's device copies from and to at full speed.
    ///
    /// # Errors
    /// [`Error::Call`], when there is none.
    pub fn take_pinned(&mut self, lane: Lane, len_bytes: usize) -> Result<Block, Error> {
        let len_bytes = Pool::<usize>::size_for(len_bytes).unwrap_or(len_bytes);
        let state = &mut self.lanes[lane.0];
        let address = match state.pinned.take(len_bytes) {
            Some(address) => address,
            None => self.drivers[state.driver].allocate_pinned(state.context, len_bytes)?,
        };
        Ok(Block { lane, memory: MemoryType::Host, address, len_bytes })
    }

    /// Memory of the lane's device.
    ///
    /// # Errors
    /// [`Error::Call`], when there is none.
    pub fn take_device(&mut self, lane: Lane, len_bytes: usize) -> Result<Block, Error> {
        let len_bytes = Pool::<usize>::size_for(len_bytes).unwrap_or(len_bytes);
        let state = &mut self.lanes[lane.0];
        let address = match state.device.take(len_bytes) {
            Some(address) => address,
            None => {
                let address = self.drivers[state.driver].allocate(state.context, len_bytes)?;
                self.device_bytes.fetch_add(len_bytes, Ordering::Relaxed);
                address
            }
        };
        Ok(Block { lane, memory: state.memory, address, len_bytes })
    }

    /// Takes a block back that nothing under way uses.
    pub fn put(&mut self, block: Block) {
        let state = &mut self.lanes[block.lane.0];
        let pinned = block.memory == MemoryType::Host;
        let pool = if pinned { &mut state.pinned } else { &mut state.device };
        if pool.put(block.address, block.len_bytes, self.keep_bytes).is_ok() {
            return;
        }
        let driver = &self.drivers[state.driver];
        if pinned {
            driver.free_pinned(state.context, block.address);
        } else {
            driver.free(state.context, block.address);
            self.device_bytes.fetch_sub(block.len_bytes, Ordering::Relaxed);
        }
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
        if state.made_rings == MOST_RINGS {
            return Err(NoRing::Busy);
        }
        match Ring::new(&*self.drivers[state.driver], state.context, lane, slot_bytes) {
            Ok(ring) => {
                state.made_rings += 1;
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
            for address in state.pinned.drain() {
                driver.free_pinned(state.context, address);
            }
            for address in state.device.drain() {
                driver.free(state.context, address);
            }
        }
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
