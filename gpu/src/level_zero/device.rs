//! The GPUs that Level Zero's drivers have, each with its context and its command list.

use std::cell::{Cell, RefCell};

use super::result::{Status, UNINITIALIZED, check};
use super::sys::{self, Head, LevelZero as Library};
use crate::error::Error;
use crate::vendor::Vendor;

/// Events of a pool.
const POOL_EVENTS: u32 = 64;

/// A GPU.
#[derive(Debug)]
pub(super) struct Device {
    /// The driver's handle.
    pub(super) handle: usize,
    /// Handles of its parts, which own memory too.
    pub(super) parts: Vec<usize>,
    /// This process's context of the GPU's driver.
    pub(super) context: usize,
    /// What everything is queued on; 0 before its first use.
    list: Cell<usize>,
    /// A pool, and how many of its events were made.
    pool: RefCell<Option<(usize, u32)>>,
}

/// All GPUs, and the drivers' newest API version.
///
/// # Errors
/// No driver has a GPU, or a call failed.
pub(super) fn all(library: &Library) -> Result<(Vec<Device>, u32), Error> {
    // SAFETY: takes any flags.
    match unsafe { (library.init)(sys::GPU_ONLY) } {
        UNINITIALIZED => return Err(Error::NoDevice { vendor: Vendor::LevelZero }),
        status => check("zeInit", status)?,
    }
    // SAFETY: `list` gives places for the results.
    let drivers = list("zeDriverGet", 0, |count, into| unsafe { (library.drivers)(count, into) })?;
    let mut devices = Vec::new();
    let mut newest = 0;
    for driver in drivers {
        let mut version = 0;
        // SAFETY: a driver's handle and a place for the result.
        check("zeDriverGetApiVersion", unsafe { (library.api_version)(driver, &raw mut version) })?;
        newest = newest.max(version);
        // SAFETY: as above.
        let found = list("zeDeviceGet", 0, |count, into| unsafe {
            (library.devices)(driver, count, into)
        })?;
        let mut context = 0;
        for handle in found {
            if properties(library, handle)?.kind != sys::GPU {
                continue;
            }
            if context == 0 {
                let description = sys::Plain { head: Head::CONTEXT, flags: 0 };
                // SAFETY: a driver's handle, a description and a place for the result.
                check("zeContextCreate", unsafe {
                    (library.context_create)(driver, &raw const description, &raw mut context)
                })?;
            }
            // SAFETY: as above.
            let parts = list("zeDeviceGetSubDevices", 0, |count, into| unsafe {
                (library.sub_devices)(handle, count, into)
            })?;
            let (list, pool) = (Cell::new(0), RefCell::new(None));
            devices.push(Device { handle, parts, context, list, pool });
        }
    }
    if devices.is_empty() {
        return Err(Error::NoDevice { vendor: Vendor::LevelZero });
    }
    Ok((devices, newest))
}

/// What the driver says of a device.
///
/// # Errors
/// [`Error::Call`].
pub(super) fn properties(library: &Library, handle: usize) -> Result<sys::DeviceProperties, Error> {
    let mut properties = sys::DeviceProperties {
        head: Head::DEVICE,
        kind: 0,
        numbers: [0; 5],
        largest_allocation_bytes: 0,
        more_numbers: [0; 7],
        timer_resolution: 0,
        timer_bits: [0; 2],
        uuid: [0; 16],
        name: [0; 256],
    };
    // SAFETY: a device's handle and a place for the result.
    check("zeDeviceGetProperties", unsafe {
        (library.device_properties)(handle, &raw mut properties)
    })?;
    Ok(properties)
}

/// Level Zero's way to return arrays: first how many there are, then they.
///
/// # Errors
/// [`Error::Call`].
pub(super) fn list<T: Copy>(
    function: &'static str,
    blank: T,
    mut ask: impl FnMut(*mut u32, *mut T) -> Status,
) -> Result<Vec<T>, Error> {
    let mut count = 0;
    check(function, ask(&raw mut count, std::ptr::null_mut()))?;
    let mut items = vec![blank; count as usize];
    if count > 0 {
        check(function, ask(&raw mut count, items.as_mut_ptr()))?;
        items.truncate(count as usize);
    }
    Ok(items)
}

impl Device {
    /// The device's command list, made at its first use.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub(super) fn list(&self, library: &Library) -> Result<usize, Error> {
        if self.list.get() != 0 {
            return Ok(self.list.get());
        }
        let blank =
            sys::QueueGroup { head: Head::QUEUE_GROUP, flags: 0, pattern_bytes: 0, queues: 0 };
        // SAFETY: a device's handle; `list` gives places for the results.
        let groups = list("zeDeviceGetCommandQueueGroupProperties", blank, |count, into| unsafe {
            (library.queue_groups)(self.handle, count, into)
        })?;
        let computes = |group: &sys::QueueGroup| group.flags & sys::COMPUTE != 0;
        let description = sys::Queue {
            head: Head::QUEUE,
            ordinal: groups.iter().position(computes).unwrap_or(0) as u32,
            index: 0,
            flags: 0,
            mode: sys::ASYNCHRONOUS,
            priority: 0,
        };
        let mut made = 0;
        // SAFETY: handles of this driver, a description and a place for the result.
        check("zeCommandListCreateImmediate", unsafe {
            (library.list_create)(self.context, self.handle, &raw const description, &raw mut made)
        })?;
        self.list.set(made);
        Ok(made)
    }

    /// A new event. Pools are kept for good, as events are.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub(super) fn event(&self, library: &Library) -> Result<usize, Error> {
        let mut pool = self.pool.borrow_mut();
        let (handle, index) = match *pool {
            Some((handle, used)) if used < POOL_EVENTS => (handle, used),
            _ => (self.new_pool(library)?, 0),
        };
        *pool = Some((handle, index + 1));
        let description = sys::Event { head: Head::EVENT, index, signal: sys::TO_HOST, wait: 0 };
        let mut event = 0;
        // SAFETY: a pool's handle, a number that no event of it has, and a place for the result.
        check("zeEventCreate", unsafe {
            (library.event_create)(handle, &raw const description, &raw mut event)
        })?;
        Ok(event)
    }

    fn new_pool(&self, library: &Library) -> Result<usize, Error> {
        let (head, flags) = (Head::EVENT_POOL, sys::HOST_VISIBLE);
        let description = sys::EventPool { head, flags, count: POOL_EVENTS };
        let mut pool = 0;
        // SAFETY: handles of this driver, a description and a place for the result.
        check("zeEventPoolCreate", unsafe {
            (library.pool_create)(
                self.context,
                &raw const description,
                1,
                &raw const self.handle,
                &raw mut pool,
            )
        })?;
        Ok(pool)
    }
}
