//! Memory and events of other processes.

use hetccl_emulated_device::abi::Out;
use hetccl_emulated_device::event::Event;
use hetccl_emulated_device::process::{self, HANDLE_BYTES, Handle};
use hetccl_emulated_device::{Code, entries, memory};

use crate::device::{current, domain, owner};
use crate::stream;

const LAZY_ENABLE_PEER_ACCESS: u32 = 1;
const EVENT_FLAGS: u32 = 6;

/// Handles are structures that C passes by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Opaque([u8; HANDLE_BYTES]);

entries! {
    fn hipIpcGetMemHandle(handle: Out<Opaque>, pointer: usize) {
        let found = memory::find(pointer).filter(|found| found.base == pointer).ok_or(Code::INVALID_DEVICE_POINTER)?;
        handle.set(Opaque(found.handle()?.encode()))
    }

    fn hipIpcOpenMemHandle(pointer: Out<usize>, handle: Opaque, flags: u32) {
        pointer.check()?;
        if flags != LAZY_ENABLE_PEER_ACCESS {
            return Err(Code::INVALID_VALUE);
        }
        pointer.set(process::open(Handle::decode(&handle.0)?, false, owner(flags)?)?.base)
    }

    fn hipIpcCloseMemHandle(pointer: usize) {
        domain(current()?).synchronize();
        process::close(pointer).map_err(|_| Code::INVALID_HANDLE)
    }

    fn hipIpcGetEventHandle(handle: Out<Opaque>, event: usize) {
        let shared = stream::event(event)?.handle().ok_or(Code::INVALID_CONFIGURATION)?;
        handle.set(Opaque(shared.encode()))
    }

    fn hipIpcOpenEventHandle(event: Out<usize>, handle: Opaque) {
        event.check()?;
        current()?;
        event.set(stream::insert_event(Event::open(Handle::decode(&handle.0)?, EVENT_FLAGS, 0)?))
    }
}
