//! Contexts: the primary one of each device, further ones, and each thread's stack of them.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use hetccl_emulated_device::abi::{Out, Table};
use hetccl_emulated_device::stream::Domain;
use hetccl_emulated_device::{Code, entries, memory};

use crate::device::checked;

const API_VERSION: u32 = 3020;
const ALL_FLAGS: u32 = 0xff;
const MOST_DEVICES: usize = 64;

/// What allocations, streams and modules belong to.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) handle: usize,
    pub(crate) device: usize,
    pub(crate) domain: Arc<Domain>,
    primary: bool,
    flags: AtomicU32,
    alive: AtomicBool,
    peers: Mutex<Vec<usize>>,
}

#[derive(Default)]
struct Primary {
    context: Option<Arc<Context>>,
    uses: usize,
    flags: u32,
}

static CONTEXTS: Table<Context> = Table::new(1);
static PRIMARY: Mutex<[Primary; MOST_DEVICES]> =
    Mutex::new([const { Primary { context: None, uses: 0, flags: 0 } }; MOST_DEVICES]);

thread_local! {
    static STACK: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
}

/// The calling thread's context.
pub(crate) fn current() -> Result<Arc<Context>, Code> {
    let current = STACK.with_borrow(|stack| stack.last().cloned()).ok_or(Code::INVALID_CONTEXT)?;
    if current.alive.load(Ordering::Acquire) {
        Ok(current)
    } else {
        Err(Code::CONTEXT_IS_DESTROYED)
    }
}

/// The context with this handle.
pub(crate) fn with_handle(handle: usize) -> Result<Arc<Context>, Code> {
    CONTEXTS.get(handle).map_err(|_| Code::INVALID_CONTEXT)
}

impl Context {
    fn new(device: usize, flags: u32, primary: bool) -> Arc<Context> {
        let handle = CONTEXTS.new_handle();
        let context = Arc::new(Context {
            handle,
            device,
            domain: Domain::new(device, handle),
            primary,
            flags: AtomicU32::new(flags),
            alive: AtomicBool::new(true),
            peers: Mutex::default(),
        });
        CONTEXTS.insert_as(handle, context.clone());
        context
    }

    /// What new memory of this context notes.
    pub(crate) fn owner(&self, flags: u32) -> memory::Owner {
        memory::Owner { device: self.device, context: self.handle, flags }
    }

    fn destroy(&self) {
        self.domain.synchronize();
        self.domain.close();
        self.alive.store(false, Ordering::Release);
        let _ = CONTEXTS.remove(self.handle);
        crate::stream::forget(self.handle);
        crate::event::forget(self.handle);
        for allocation in
            memory::all(|found| found.context == self.handle && found.kind != memory::Kind::Mapped)
        {
            let _ = memory::release(allocation.base, |_| true);
        }
    }
}

fn primary<R>(device: i32, use_primary: impl FnOnce(&mut Primary, usize) -> R) -> Result<R, Code> {
    let device = checked(device)?;
    let mut all = PRIMARY.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    Ok(use_primary(&mut all[device], device))
}

fn set_current(handle: usize) -> Result<(), Code> {
    let context = if handle == 0 { None } else { Some(with_handle(handle)?) };
    STACK.with_borrow_mut(|stack| {
        stack.pop();
        stack.extend(context);
    });
    Ok(())
}

fn create(context: Out<usize>, flags: u32, device: i32) -> Result<(), Code> {
    context.check()?;
    let device = checked(device)?;
    if flags & !ALL_FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let made = Context::new(device, flags, false);
    STACK.with_borrow_mut(|stack| stack.push(made.clone()));
    context.set(made.handle)
}

entries! {
    fn cuDevicePrimaryCtxRetain(context: Out<usize>, device: i32) {
        context.check()?;
        let handle = primary(device, |primary, device| {
            primary.uses += 1;
            primary.context.get_or_insert_with(|| Context::new(device, primary.flags, true)).handle
        })?;
        context.set(handle)
    }

    fn cuDevicePrimaryCtxRelease_v2 / cuDevicePrimaryCtxRelease(device: i32) {
        let unused = primary(device, |primary, _| {
            primary.uses = primary.uses.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
            Ok(if primary.uses == 0 { primary.context.take() } else { None })
        })??;
        if let Some(context) = unused {
            context.destroy();
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxReset_v2 / cuDevicePrimaryCtxReset(device: i32) {
        let reset = primary(device, |primary, _| {
            primary.uses = 0;
            primary.context.take()
        })?;
        if let Some(context) = reset {
            context.destroy();
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxSetFlags_v2 / cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) {
        if flags & !ALL_FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        primary(device, |primary, _| {
            primary.flags = flags;
            if let Some(context) = &primary.context {
                context.flags.store(flags, Ordering::Relaxed);
            }
        })
    }

    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) {
        let (now, is_active) = primary_state(device)?;
        flags.set(now)?;
        active.set(is_active)
    }

    fn cuCtxCreate_v2(context: Out<usize>, flags: u32, device: i32) {
        create(context, flags, device)
    }

    fn cuCtxCreate_v3(context: Out<usize>, _affinity: Out<u8>, _affinities: i32, flags: u32, device: i32) {
        create(context, flags, device)
    }

    fn cuCtxDestroy_v2 / cuCtxDestroy(context: usize) {
        let context = with_handle(context)?;
        if context.primary {
            return Err(Code::INVALID_CONTEXT);
        }
        STACK.with_borrow_mut(|stack| {
            if stack.last().is_some_and(|top| top.handle == context.handle) {
                stack.pop();
            }
        });
        context.destroy();
        Ok(())
    }

    fn cuCtxPushCurrent_v2 / cuCtxPushCurrent(context: usize) {
        let context = with_handle(context)?;
        STACK.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }

    fn cuCtxPopCurrent_v2 / cuCtxPopCurrent(context: Out<usize>) {
        let popped = STACK.with_borrow_mut(Vec::pop).ok_or(Code::INVALID_CONTEXT)?;
        context.set_if_wanted(popped.handle);
        Ok(())
    }

    fn cuCtxSetCurrent(context: usize) {
        set_current(context)
    }

    fn cuCtxGetCurrent(context: Out<usize>) {
        context.set(STACK.with_borrow(|stack| stack.last().map_or(0, |top| top.handle)))
    }

    fn cuCtxGetDevice(device: Out<i32>) {
        device.set(current()?.device as i32)
    }

    fn cuCtxGetFlags(flags: Out<u32>) {
        flags.set(current()?.flags.load(Ordering::Relaxed))
    }

    fn cuCtxSetFlags(flags: u32) {
        current()?.flags.store(flags & ALL_FLAGS, Ordering::Relaxed);
        Ok(())
    }

    fn cuCtxGetId(context: usize, id: Out<u64>) {
        let context = if context == 0 { current()? } else { with_handle(context)? };
        id.set(context.handle as u64)
    }

    fn cuCtxSynchronize() {
        current()?.domain.synchronize();
        Ok(())
    }

    fn cuCtxGetApiVersion(context: usize, version: Out<u32>) {
        if context == 0 { current()? } else { with_handle(context)? };
        version.set(API_VERSION)
    }

    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        current()?;
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    }

    fn cuCtxSetLimit(_limit: i32, _value: usize) {
        current().map(drop)
    }

    fn cuCtxGetLimit(value: Out<usize>, _limit: i32) {
        current()?;
        value.set(1024)
    }

    fn cuCtxSetCacheConfig(_config: i32) {
        current().map(drop)
    }

    fn cuCtxGetCacheConfig(config: Out<i32>) {
        current()?;
        config.set(0)
    }

    fn cuCtxEnablePeerAccess(peer: usize, flags: u32) {
        let (context, peer) = (current()?, with_handle(peer)?);
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if peer.device == context.device {
            return Err(Code::INVALID_DEVICE);
        }
        let mut peers = context.peers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if peers.contains(&peer.handle) {
            return Err(Code::PEER_ACCESS_ALREADY_ENABLED);
        }
        peers.push(peer.handle);
        Ok(())
    }

    fn cuCtxDisablePeerAccess(peer: usize) {
        let (context, peer) = (current()?, with_handle(peer)?);
        let mut peers = context.peers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let position = peers.iter().position(|&enabled| enabled == peer.handle).ok_or(Code::PEER_ACCESS_NOT_ENABLED)?;
        peers.remove(position);
        Ok(())
    }
}

fn primary_state(device: i32) -> Result<(u32, i32), Code> {
    primary(device, |primary, _| (primary.flags, i32::from(primary.context.is_some())))
}
