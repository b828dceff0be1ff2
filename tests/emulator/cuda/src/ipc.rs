//! Memory and events of other processes.

use hetccl_emulated_device::abi::Out;
use hetccl_emulated_device::event::Event;
use hetccl_emulated_device::memory;
use hetccl_emulated_device::process::{self, HANDLE_BYTES, Handle};
use hetccl_emulated_device::{Code, entries};

use crate::context::current;
use crate::event;

const LAZY_ENABLE_PEER_ACCESS: u32 = 1;
const EVENT_FLAGS: u32 = 6;

/// Handles are structures that C passes by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Opaque([u8; HANDLE_BYTES]);

fn open(pointer: Out<usize>, handle: Opaque, flags: u32) -> Result<(), Code> {
    pointer.check()?;
    let context = current()?;
    if flags & !LAZY_ENABLE_PEER_ACCESS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    pointer.set(process::open(Handle::decode(&handle.0)?, true, context.owner(flags))?.base)
}

entries! {
    fn cuIpcGetMemHandle(handle: Out<Opaque>, pointer: usize) {
        current()?;
        let found = memory::find(pointer).ok_or(Code::INVALID_VALUE)?;
        handle.set(Opaque(found.handle()?.encode()))
    }

    fn cuIpcOpenMemHandle_v2 / cuIpcOpenMemHandle(pointer: Out<usize>, handle: Opaque, flags: u32) {
        open(pointer, handle, flags)
    }

    fn cuIpcCloseMemHandle(pointer: usize) {
        current()?.domain.synchronize();
        process::close(pointer)
    }

    fn cuIpcGetEventHandle(handle: Out<Opaque>, event: usize) {
        let shared = event::get(event)?.handle().ok_or(Code::INVALID_HANDLE)?;
        handle.set(Opaque(shared.encode()))
    }

    fn cuIpcOpenEventHandle(event: Out<usize>, handle: Opaque) {
        event.check()?;
        let opened = Event::open(Handle::decode(&handle.0)?, EVENT_FLAGS, current()?.handle)?;
        event.set(event::insert(opened))
    }
}
