//! Modules, kernels and launches.

use std::ffi::c_void;

use hetccl_emulated_device::abi::{In, Out, Table, Text};
use hetccl_emulated_device::kernel::{Kernel, Module, Shape};
use hetccl_emulated_device::{Code, entries};

use crate::device::current;
use crate::stream;

static MODULES: Table<Module> = Table::new(5);
static KERNELS: Table<Kernel> = Table::new(6);

fn load(module: Out<usize>, image: In<u8>) -> Result<(), Code> {
    module.check()?;
    current()?;
    // SAFETY: the C caller passes an image, by the function's documentation.
    let loaded = unsafe { Module::from_memory(image.pointer())? };
    module.set(MODULES.insert(loaded))
}

fn launch(
    kernel: usize,
    shape: Shape,
    stream: usize,
    parameters: In<*const c_void>,
    extra: usize,
) -> Result<(), Code> {
    let kernel = KERNELS.get(kernel)?;
    if extra != 0 {
        eprintln!(
            "hetccl emulator: launch of {}: parameters in a buffer (extra) are not supported",
            kernel.name
        );
        return Err(Code::NOT_SUPPORTED);
    }
    // SAFETY: the C caller passes a pointer to each argument, by the function's documentation.
    unsafe { kernel.launch(&stream::get(stream)?, shape, parameters.pointer()) }
}

/// By the numbers of `hipFunction_attribute`.
fn attribute_of(attribute: i32) -> Result<i32, Code> {
    Ok(match attribute {
        0 => 1024,
        4 => 64,
        8 => 64 << 10,
        1..=3 | 5..=7 | 9 => 0,
        _ => return Err(Code::INVALID_VALUE),
    })
}

entries! {
    fn hipModuleLoad(module: Out<usize>, path: Text) {
        module.check()?;
        current()?;
        module.set(MODULES.insert(Module::from_file(path.get()?)?))
    }

    fn hipModuleLoadData(module: Out<usize>, image: In<u8>) {
        load(module, image)
    }

    fn hipModuleLoadDataEx(module: Out<usize>, image: In<u8>, _count: u32, _options: usize, _values: usize) {
        load(module, image)
    }

    fn hipModuleUnload(module: usize) {
        MODULES.remove(module).map(drop)
    }

    fn hipModuleGetFunction(kernel: Out<usize>, module: usize, name: Text) {
        kernel.check()?;
        kernel.set(KERNELS.insert(MODULES.get(module)?.kernel(name.get()?)?))
    }

    fn hipModuleGetGlobal(_pointer: Out<usize>, _bytes: Out<usize>, module: usize, _name: Text) {
        MODULES.get(module)?;
        Err(Code::NOT_FOUND)
    }

    fn hipFuncGetAttribute(value: Out<i32>, attribute: i32, function: usize) {
        KERNELS.get(function)?;
        value.set(attribute_of(attribute)?)
    }

    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<i32>, function: usize, _block: i32, _shared: usize
    ) {
        KERNELS.get(function)?;
        blocks.set(2)
    }

    fn hipModuleLaunchKernel = hipModuleLaunchKernel_spt(
        function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared_bytes: u32, stream: usize, parameters: In<*const c_void>, extra: usize
    ) {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z] };
        launch(function, shape, stream, parameters, extra)
    }

    fn hipModuleLaunchCooperativeKernel(
        function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared_bytes: u32, stream: usize, parameters: In<*const c_void>
    ) {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z] };
        launch(function, shape, stream, parameters, 0)
    }
}
