//! Modules, libraries, kernels and launches.

use std::ffi::c_void;

use hetccl_emulated_device::abi::{In, Out, Table, Text};
use hetccl_emulated_device::kernel::{Kernel, Module, Shape};
use hetccl_emulated_device::{Code, entries};

use crate::context::current;
use crate::stream;

static MODULES: Table<Module> = Table::new(5);
static KERNELS: Table<Kernel> = Table::new(6);

fn load(module: Out<usize>, image: In<u8>) -> Result<(), Code> {
    module.check()?;
    let _locked = current()?.domain.lock_out();
    // SAFETY: the C caller passes an image, by the function's documentation.
    let loaded = unsafe { Module::from_memory(image.pointer())? };
    module.set(MODULES.insert(loaded))
}

fn find(kernel: Out<usize>, module: usize, name: Text) -> Result<(), Code> {
    kernel.check()?;
    kernel.set(KERNELS.insert(MODULES.get(module)?.kernel(name.get()?)?))
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
    unsafe { kernel.launch(&stream::get_for_work(stream)?, shape, parameters.pointer()) }
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfiguration {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: usize,
    attributes: usize,
    attribute_count: u32,
}

/// By the numbers of `CUfunction_attribute`.
fn attribute_of(attribute: i32) -> Result<i32, Code> {
    Ok(match attribute {
        0 => 1024,
        4 => 32,
        5 | 6 => 90,
        8 => 48 << 10,
        1..=3 | 7 | 9..=15 => 0,
        _ => return Err(Code::INVALID_VALUE),
    })
}

/// The sizes of the headers.
const _: () = {
    assert!(size_of::<LaunchConfiguration>() == 56);
};

entries! {
    fn cuModuleLoad(module: Out<usize>, path: Text) {
        module.check()?;
        current()?;
        module.set(MODULES.insert(Module::from_file(path.get()?)?))
    }

    fn cuModuleLoadData(module: Out<usize>, image: In<u8>) {
        load(module, image)
    }

    fn cuModuleLoadDataEx(module: Out<usize>, image: In<u8>, _count: u32, _options: usize, _values: usize) {
        load(module, image)
    }

    fn cuModuleLoadFatBinary(module: Out<usize>, image: In<u8>) {
        load(module, image)
    }

    fn cuModuleUnload(module: usize) {
        current()?;
        MODULES.remove(module).map(drop)
    }

    fn cuModuleGetLoadingMode(mode: Out<i32>) {
        mode.set(2)
    }

    fn cuModuleGetFunction(kernel: Out<usize>, module: usize, name: Text) {
        find(kernel, module, name)
    }

    fn cuModuleGetGlobal_v2(_pointer: Out<usize>, _bytes: Out<usize>, module: usize, _name: Text) {
        MODULES.get(module)?;
        Err(Code::NOT_FOUND)
    }

    fn cuLibraryLoadData(
        library: Out<usize>, image: In<u8>, _jit_options: usize, _jit_values: usize, _jit_count: u32,
        _options: usize, _values: usize, _count: u32
    ) {
        library.check()?;
        let _locked = current()?.domain.lock_out();
        // SAFETY: the C caller passes an image, by the function's documentation.
        let loaded = unsafe { Module::from_memory(image.pointer())? };
        library.set(MODULES.insert(loaded))
    }

    fn cuLibraryLoadFromFile(
        library: Out<usize>, path: Text, _jit_options: usize, _jit_values: usize, _jit_count: u32,
        _options: usize, _values: usize, _count: u32
    ) {
        library.set(MODULES.insert(Module::from_file(path.get()?)?))
    }

    fn cuLibraryUnload(library: usize) {
        MODULES.remove(library).map(drop)
    }

    fn cuLibraryGetKernel(kernel: Out<usize>, library: usize, name: Text) {
        find(kernel, library, name)
    }

    fn cuLibraryGetModule(module: Out<usize>, library: usize) {
        module.set(MODULES.insert(MODULES.get(library)?))
    }

    fn cuKernelGetFunction(function: Out<usize>, kernel: usize) {
        function.set(KERNELS.insert(KERNELS.get(kernel)?))
    }

    fn cuFuncGetAttribute(value: Out<i32>, attribute: i32, function: usize) {
        KERNELS.get(function)?;
        value.set(attribute_of(attribute)?)
    }

    fn cuFuncSetAttribute(function: usize, _attribute: i32, _value: i32) {
        KERNELS.get(function).map(drop)
    }

    fn cuFuncSetCacheConfig(function: usize, _config: i32) {
        KERNELS.get(function).map(drop)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out<i32>, function: usize, _block: i32, _shared: usize) {
        KERNELS.get(function)?;
        blocks.set(2)
    }

    fn cuLaunchKernel = cuLaunchKernel_ptsz(
        function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared_bytes: u32, stream: usize, parameters: In<*const c_void>, extra: usize
    ) {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z] };
        launch(function, shape, stream, parameters, extra)
    }

    fn cuLaunchKernelEx = cuLaunchKernelEx_ptsz(
        configuration: In<LaunchConfiguration>, function: usize, parameters: In<*const c_void>, extra: usize
    ) {
        let LaunchConfiguration { grid, block, stream, .. } = configuration.get()?;
        launch(function, Shape { grid, block }, stream, parameters, extra)
    }

    fn cuLaunchCooperativeKernel = cuLaunchCooperativeKernel_ptsz(
        function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared_bytes: u32, stream: usize, parameters: In<*const c_void>
    ) {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z] };
        launch(function, shape, stream, parameters, 0)
    }
}
