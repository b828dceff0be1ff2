//! Modules and kernels.

use std::sync::{Arc, Mutex, MutexGuard};

use hetccl_emulated_device::abi::{In, Out, Table, Text};
use hetccl_emulated_device::kernel::{self, Shape};
use hetccl_emulated_device::{Code, entries};

use crate::device::{check_context, checked};

const MOST_ARGUMENTS: usize = 128;
const SPIRV_FORMAT: u32 = 0;
const SPIRV_MAGIC: [u8; 4] = 0x0723_0203_u32.to_le_bytes();
const BUILD_FAILURE: Code = Code(0x7000_0004);
const INVALID_ARGUMENT_INDEX: Code = Code(0x7800_0015);

static MODULES: Table<kernel::Module> = Table::new(7);
static KERNELS: Table<Kernel> = Table::new(8);

#[derive(Debug)]
struct Kernel {
    kernel: Arc<kernel::Kernel>,
    state: Mutex<State>,
}

/// Set before launches, copied at each.
#[derive(Clone, Debug)]
struct State {
    group: [u32; 3],
    arguments: Vec<Vec<u64>>,
}

/// `ze_module_desc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ModuleDescription {
    structure: u32,
    next: usize,
    format: u32,
    bytes: usize,
    image: In<u8>,
    flags: usize,
    constants: usize,
}

/// `ze_kernel_desc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelDescription {
    structure: u32,
    next: usize,
    flags: u32,
    name: Text,
}

/// `ze_group_count_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GroupCount([u32; 3]);

impl Kernel {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A launch, with the arguments and the group size that are set now.
pub(crate) fn launch(handle: usize, groups: GroupCount) -> Result<impl Fn() + Send + Sync, Code> {
    let kernel = KERNELS.get(handle)?;
    let State { group, arguments } = kernel.lock().clone();
    kernel.kernel.operation(arguments, Shape { grid: groups.0, block: group })
}

/// The sizes of the headers.
const _: () = {
    assert!(size_of::<ModuleDescription>() == 56);
    assert!(size_of::<KernelDescription>() == 32);
};

entries! {
    fn zeModuleCreate(
        context: usize, device: usize, description: In<ModuleDescription>, module: Out<usize>, log: Out<usize>
    ) {
        check_context(context)?;
        checked(device)?;
        module.check()?;
        let ModuleDescription { format, bytes, image, .. } = description.get()?;
        log.set_if_wanted(0);
        let image: Vec<u8> = (0..bytes).map(|index| image.at(index)).collect::<Result<_, Code>>()?;
        if format == SPIRV_FORMAT && !image.starts_with(&SPIRV_MAGIC) {
            return Err(BUILD_FAILURE);
        }
        module.set(MODULES.insert(kernel::Module::from_bytes(&image)?))
    }

    fn zeModuleDestroy(module: usize) {
        MODULES.remove(module).map(drop)
    }

    fn zeModuleBuildLogGetString(_log: usize, bytes: Out<usize>, _text: Out<u8>) {
        bytes.set(0)
    }

    fn zeModuleBuildLogDestroy(_log: usize) {
        Ok(())
    }

    fn zeKernelCreate(module: usize, description: In<KernelDescription>, kernel: Out<usize>) {
        kernel.check()?;
        let found = MODULES.get(module)?.kernel(description.get()?.name.get()?)?;
        let state = Mutex::new(State { group: [1; 3], arguments: Vec::new() });
        kernel.set(KERNELS.insert(Arc::new(Kernel { kernel: found, state })))
    }

    fn zeKernelDestroy(kernel: usize) {
        KERNELS.remove(kernel).map(drop)
    }

    fn zeKernelSetIndirectAccess(kernel: usize, _flags: u32) {
        KERNELS.get(kernel).map(drop)
    }

    fn zeKernelSetGroupSize(kernel: usize, x: u32, y: u32, z: u32) {
        KERNELS.get(kernel)?.lock().group = [x, y, z];
        Ok(())
    }

    fn zeKernelSuggestGroupSize(
        kernel: usize, x: u32, _y: u32, _z: u32, group_x: Out<u32>, group_y: Out<u32>, group_z: Out<u32>
    ) {
        KERNELS.get(kernel)?;
        group_x.set(x.clamp(1, 256))?;
        group_y.set(1)?;
        group_z.set(1)
    }

    fn zeKernelSetArgumentValue(kernel: usize, index: u32, bytes: usize, value: In<u8>) {
        let (kernel, index) = (KERNELS.get(kernel)?, index as usize);
        if index >= MOST_ARGUMENTS {
            return Err(INVALID_ARGUMENT_INDEX);
        }
        // Null is a pointer argument's null.
        let byte = |at| if value.pointer().is_null() { Ok(0) } else { value.at(at) };
        let value: Result<Vec<u8>, Code> = (0..bytes).map(byte).collect();
        let mut state = kernel.lock();
        let most = state.arguments.len().max(index + 1);
        state.arguments.resize(most, Vec::new());
        state.arguments[index] = kernel::words(&value?);
        Ok(())
    }
}
