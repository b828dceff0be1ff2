//! The reduction kernels as the host runs them, against references in f64 and i128; and whether all compilers take them.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::OnceLock;

use half::{bf16, f16};
use libloading::Library;
use xtask::command;
use xtask::kernels::{self, CodeObject};
use xtask::spirv::{self, Modules};

#[path = "kernels/reference.rs"]
mod reference;
use reference::{Kernel, Kind, expected, same};

/// As in `reduce.h`.
#[repr(C)]
struct Args {
    inputs: [*const u8; 8],
    output: *mut u8,
    count: u64,
    inputs_len: u32,
    reserved: u32,
    scalar: u64,
}
const _: () = assert!(size_of::<Args>() == 96 && align_of::<Args>() == 8);

/// The host library; `None`, and said, where there is no C++ compiler.
fn library(what: &str) -> Option<&'static Library> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    if !command::exists("c++") {
        println!("SKIPPED {what}: no c++ on PATH");
        return None;
    }
    Some(LIBRARY.get_or_init(|| {
        let file = kernels::host_library().unwrap_or_else(|error| panic!("{error:#}"));
        // SAFETY: made just now; it has no initialisers.
        unsafe { Library::new(file) }.unwrap()
    }))
}

/// Runs a kernel on a grid of 3 blocks of 64 threads.
fn launch(library: &Library, name: &str, args: &Args) {
    type Function = unsafe extern "C" fn(*mut *mut c_void, *const [u32; 3], *const [u32; 3]);
    let mut pointers = [std::ptr::from_ref(args).cast_mut().cast::<c_void>()];
    // SAFETY: the library's functions have this type, and `args` points to buffers that are long enough.
    unsafe {
        let function = library.get::<Function>(name.as_bytes()).unwrap();
        function(pointers.as_mut_ptr(), &[3, 1, 1], &[64, 1, 1]);
    }
}

/// Bytes that begin at a multiple of 16, plus a distance.
#[derive(Clone)]
struct Buffer {
    memory: Vec<u128>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn new(bytes: &[u8], start: usize) -> Buffer {
        let mut buffer =
            Buffer { memory: vec![GUARD; (start + bytes.len()) / 16 + 2], start, len: bytes.len() };
        // SAFETY: the memory is longer than `start` and the bytes together.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.pointer(), bytes.len());
        }
        buffer
    }

    fn pointer(&mut self) -> *mut u8 {
        // SAFETY: `start` lies inside.
        unsafe { self.memory.as_mut_ptr().cast::<u8>().add(self.start) }
    }

    fn all(&self) -> Vec<u8> {
        self.memory.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn bytes(&self) -> Vec<u8> {
        self.all()[self.start..self.start + self.len].to_vec()
    }

    /// That nothing was written around the bytes.
    fn check_guards(&self, what: &str) {
        let all = self.all();
        let outside = (0..all.len()).filter(|i| !(self.start..self.start + self.len).contains(i));
        for i in outside {
            assert_eq!(all[i], GUARD_BYTE, "{what}: byte {i} outside of the output was written");
        }
    }
}

const GUARD_BYTE: u8 = 0xa5;
const GUARD: u128 = u128::from_ne_bytes([GUARD_BYTE; 16]);

/// One way of calling a kernel.
#[derive(Clone, Copy, Debug)]
struct Shape {
    count: usize,
    inputs_len: usize,
    /// Elements by which the first input, and all others with the output, are off a 16-byte boundary.
    offsets: (usize, usize),
    /// Which input the output is.
    in_place: Option<usize>,
}

/// Runs a kernel on `inputs`, each of whole elements.
fn run(
    library: &Library,
    kernel: Kernel,
    inputs: &[Vec<u8>],
    scalar: u64,
    shape: Shape,
) -> Vec<u8> {
    let size = kernel.kind.size();
    let mut buffers: Vec<Buffer> = inputs
        .iter()
        .enumerate()
        .map(|(k, bytes)| {
            let offset = if k == 0 { shape.offsets.0 } else { shape.offsets.1 };
            Buffer::new(bytes, offset * size)
        })
        .collect();
    let mut apart = Buffer::new(&vec![0; shape.count * size], shape.offsets.1 * size);
    let mut args = Args {
        inputs: [std::ptr::null(); 8],
        output: std::ptr::null_mut(),
        count: shape.count as u64,
        inputs_len: inputs.len() as u32,
        reserved: 0,
        scalar,
    };
    for (k, buffer) in buffers.iter_mut().enumerate() {
        args.inputs[k] = buffer.pointer();
    }
    let what = format!("{} {shape:?}", kernel.name());
    let output = match shape.in_place {
        Some(k) => &mut buffers[k],
        None => &mut apart,
    };
    args.output = output.pointer();
    launch(library, &kernel.name(), &args);
    output.check_guards(&what);
    output.bytes()
}

/// Numbers that are the same wherever they are drawn.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Half of the elements are any bits, NaN and infinities among them; the others small numbers, which tie.
    fn elements(&mut self, kind: Kind, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            if self.next().is_multiple_of(2) {
                let random: Vec<u8> =
                    (0..kind.size()).map(|_| self.next().to_le_bytes()[0]).collect();
                bytes.extend(random);
            } else {
                bytes.extend(kind.small((self.next() % 7) as i32 - 3, (self.next() % 4) as i32));
            }
        }
        bytes
    }
}

fn check(library: &Library, kernel: Kernel, inputs: &[Vec<u8>], scalar: u64, shape: Shape) {
    let got = run(library, kernel, inputs, scalar, shape);
    let size = kernel.kind.size();
    for i in 0..shape.count {
        let column: Vec<&[u8]> = inputs.iter().map(|input| &input[i * size..][..size]).collect();
        let want = expected(kernel, &column, scalar);
        let got = &got[i * size..][..size];
        assert!(
            same(kernel, got, &want),
            "{} {shape:?}, element {i} of {column:02x?}, scalar {scalar:#x}: {got:02x?}, expected {want:02x?}",
            kernel.name()
        );
    }
}

#[test]
fn every_kernel_matches_its_reference() {
    let Some(library) = library("the kernels on the host") else { return };
    let mut draw = Draw(7);
    let mut checks = 0;
    for kernel in Kernel::all() {
        let mut shapes = Vec::new();
        for count in [0, 1, 15, 16, 17, 1000] {
            for (inputs_len, offsets) in
                [(1, (0, 0)), (2, (0, 0)), (2, (1, 1)), (2, (1, 0)), (3, (1, 1))]
            {
                shapes.push(Shape { count, inputs_len, offsets, in_place: None });
            }
            let in_place = |inputs_len: usize, offsets, k| Shape {
                count,
                inputs_len,
                offsets,
                in_place: Some(k),
            };
            shapes.extend([in_place(2, (0, 0), 0), in_place(2, (1, 1), 1), in_place(8, (0, 0), 7)]);
        }
        shapes.push(Shape { count: 20_000, inputs_len: 2, offsets: (0, 0), in_place: Some(1) });
        for shape in shapes {
            let inputs: Vec<Vec<u8>> =
                (0..shape.inputs_len).map(|_| draw.elements(kernel.kind, shape.count)).collect();
            let scalar = match kernel.op {
                "avg" => [0, 1, 2, 3, 7, 8, 100, 1 << 40][(draw.next() % 8) as usize],
                _ => draw.next(),
            };
            check(library, kernel, &inputs, scalar, shape);
            checks += shape.count;
        }
    }
    println!("{} kernels, {checks} elements compared", Kernel::all().len());
}

/// One element of each input.
fn one(library: &Library, op: &'static str, kind: Kind, inputs: &[&[u8]]) -> Vec<u8> {
    let inputs: Vec<Vec<u8>> = inputs.iter().map(|bytes| bytes.to_vec()).collect();
    let shape = Shape { count: 1, inputs_len: inputs.len(), offsets: (0, 0), in_place: None };
    run(library, Kernel { op, kind }, &inputs, 0, shape)
}

#[test]
fn of_a_nan_and_a_number_min_and_max_keep_the_right_one() {
    let Some(library) = library("NaN") else { return };
    let (nan, number) = (f32::from_bits(0x7fc1_2345).to_le_bytes(), 1f32.to_le_bytes());
    for op in ["min", "max"] {
        assert_eq!(one(library, op, Kind::F32, &[&nan, &number]), number, "{op}");
        assert_eq!(one(library, op, Kind::F32, &[&number, &nan]), nan, "{op}");
        let (nan, number) = (0x7e01u16.to_le_bytes(), f16::ONE.to_le_bytes());
        assert_eq!(one(library, op, Kind::F16, &[&nan, &number]), number, "{op}");
        assert_eq!(one(library, op, Kind::F16, &[&number, &nan]), nan, "{op}");
        assert_eq!(one(library, op, Kind::E4m3, &[&[0x7f], &[0x38]]), [0x38], "{op}");
        assert_eq!(one(library, op, Kind::E5m2, &[&[0x3c], &[0x7e]]), [0x7e], "{op}");
    }
    let nan = f16::NAN.to_le_bytes();
    assert_eq!(one(library, "sum", Kind::F16, &[&nan, &nan]), 0x7fffu16.to_le_bytes());
    let (negative, positive) = ((-0f32).to_le_bytes(), 0f32.to_le_bytes());
    assert_eq!(one(library, "min", Kind::F32, &[&negative, &positive]), positive);
    assert_eq!(one(library, "max", Kind::F32, &[&positive, &negative]), negative);
}

#[test]
fn of_equal_values_the_smaller_index_wins() {
    let Some(library) = library("ties") else { return };
    let pair = |value: f64, index: i32| {
        [&value.to_le_bytes()[..], &index.to_le_bytes()[..], &[9, 9, 9, 9]].concat()
    };
    for (op, best) in [("minloc", -2.0), ("maxloc", 5.0)] {
        let inputs = [pair(best, 4), pair(1.0, 0), pair(best, 2), pair(best, 3)];
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        assert_eq!(one(library, op, Kind::F64Int, &inputs), pair(best, 2), "{op}");
    }
    let inputs = [pair(0.0, 7), pair(-0.0, -1)];
    assert_eq!(one(library, "minloc", Kind::F64Int, &[&inputs[0], &inputs[1]]), inputs[1]);
}

#[test]
fn fp8_saturates() {
    let Some(library) = library("fp8") else { return };
    // 448 + 448 in e4m3; 57344 + 57344 and infinity + 1 in e5m2, whose infinity stays in min and max.
    assert_eq!(one(library, "sum", Kind::E4m3, &[&[0x7e], &[0x7e]]), [0x7e]);
    assert_eq!(one(library, "sum", Kind::E4m3, &[&[0xfe], &[0xfe]]), [0xfe]);
    assert_eq!(one(library, "sum", Kind::E5m2, &[&[0x7b], &[0x7b]]), [0x7b]);
    assert_eq!(one(library, "sum", Kind::E5m2, &[&[0x7c], &[0x3c]]), [0x7b]);
    assert_eq!(one(library, "max", Kind::E5m2, &[&[0x7c], &[0x3c]]), [0x7c]);
    assert_eq!(one(library, "sum", Kind::E5m2, &[&[0x7c], &[0xfc]]), [0x7f]);
}

/// All pairs of fp8, and every f16 and bf16 against a few that make it round and underflow.
#[test]
fn small_floats_exhaustively() {
    let Some(library) = library("small floats") else { return };
    let shape = |count| Shape { count, inputs_len: 2, offsets: (0, 0), in_place: None };
    let left: Vec<u8> = (0..=u16::MAX).map(|i| i.to_le_bytes()[0]).collect();
    let right: Vec<u8> = (0..=u16::MAX).map(|i| i.to_le_bytes()[1]).collect();
    for kind in [Kind::E4m3, Kind::E5m2] {
        for op in ["sum", "prod", "min", "max"] {
            let inputs = [left.clone(), right.clone()];
            check(library, Kernel { op, kind }, &inputs, 0, shape(1 << 16));
        }
    }
    let every: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for other in [0.333, 1.5, 6.1e-5, 3.7e-8, 255.0] {
        for op in ["sum", "prod"] {
            for kind in [Kind::F16, Kind::Bf16] {
                let other = match kind {
                    Kind::F16 => f16::from_f64(other).to_le_bytes(),
                    _ => bf16::from_f64(other).to_le_bytes(),
                };
                let inputs = [every.clone(), other.repeat(1 << 16)];
                check(library, Kernel { op, kind }, &inputs, 0, shape(1 << 16));
            }
        }
    }
}

#[test]
fn copies() {
    let Some(library) = library("copies") else { return };
    let from: Vec<u8> = (0..10_000).map(|i| (i * 7 % 251) as u8).collect();
    for (count, from_offset, to_offset) in
        [(0, 0, 0), (1, 0, 0), (10_000, 0, 0), (9_999, 3, 3), (777, 1, 2)]
    {
        let mut input = Buffer::new(&from[..count], from_offset);
        let mut output = Buffer::new(&vec![0; count], to_offset);
        let mut args = Args {
            inputs: [std::ptr::null(); 8],
            output: output.pointer(),
            count: count as u64,
            inputs_len: 1,
            reserved: 0,
            scalar: 0,
        };
        args.inputs[0] = input.pointer();
        launch(library, "hetccl_copy", &args);
        output.check_guards("hetccl_copy");
        assert_eq!(output.bytes(), from[..count], "{count} bytes");
    }
}

/// Memory that ends where the program may not read on.
struct Fenced {
    base: *mut u8,
}

impl Fenced {
    const BYTES: usize = 64 << 10;

    fn new() -> Fenced {
        // SAFETY: a new mapping, whose second half is then closed.
        unsafe {
            let (access, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let base = libc::mmap(std::ptr::null_mut(), 2 * Fenced::BYTES, access, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            let fence = base.byte_add(Fenced::BYTES);
            assert_eq!(libc::mprotect(fence, Fenced::BYTES, libc::PROT_NONE), 0);
            Fenced { base: base.cast() }
        }
    }

    /// The last so many bytes.
    fn last(&self, bytes: usize) -> *mut u8 {
        assert!(bytes <= Fenced::BYTES);
        // SAFETY: inside of the mapping.
        unsafe { self.base.add(Fenced::BYTES - bytes) }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made.
        unsafe { libc::munmap(self.base.cast(), 2 * Fenced::BYTES) };
    }
}

#[test]
fn nothing_is_touched_past_the_end() {
    let Some(library) = library("fences") else { return };
    let (inputs, output) = ([Fenced::new(), Fenced::new(), Fenced::new()], Fenced::new());
    for (name, size) in
        [("hetccl_reduce_sum_f32", 4), ("hetccl_reduce_max_u8", 1), ("hetccl_copy", 1)]
    {
        for count in [1, 4, 16, 17, 31, 400, 4097, 16_000] {
            let mut args = Args {
                inputs: [std::ptr::null(); 8],
                output: output.last(count * size),
                count: count as u64,
                inputs_len: if name == "hetccl_copy" { 1 } else { 3 },
                reserved: 0,
                scalar: 0,
            };
            for (k, input) in inputs.iter().enumerate() {
                args.inputs[k] = input.last(count * size);
            }
            launch(library, name, &args);
        }
    }
}

fn all_names() -> BTreeSet<String> {
    Kernel::all().iter().map(Kernel::name).chain(["hetccl_copy".to_owned()]).collect()
}

#[test]
fn the_spirv_is_current_and_has_every_kernel() {
    let committed = std::fs::read(spirv::file()).unwrap();
    let listed = spirv::names(&committed).unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(listed.len(), all_names().len());
    assert_eq!(BTreeSet::from_iter(listed), all_names());
    match spirv::make().unwrap_or_else(|error| panic!("{error:#}")) {
        Modules::Made(made) => {
            assert!(
                made == committed,
                "reduce.spv is not what reduce.h gives: run cargo xtask kernels"
            );
        }
        Modules::Skipped { why } => println!("SKIPPED the SPIR-V: {why}"),
    }
}

#[test]
fn the_ptx_is_current_and_all_lists_agree() {
    let names = all_names();
    let readme = std::fs::read_to_string(kernels::folder().join("README.md")).unwrap();
    let listed: BTreeSet<String> =
        readme.lines().filter(|line| line.starts_with("hetccl_")).map(str::to_owned).collect();
    assert_eq!(listed, names, "the list in gpu/kernels/README.md");
    let committed = kernels::committed_ptx().unwrap();
    assert_eq!(kernels::names_in_ptx(&committed), names);
    if !command::exists("python3") {
        println!("SKIPPED the PTX: no python3 on PATH");
        return;
    }
    let made = kernels::ptx().unwrap_or_else(|error| panic!("{error:#}"));
    assert!(made == committed, "reduce.ptx is not what reduce.h gives: run cargo xtask kernels");
}

#[test]
fn every_amd_target_compiles() {
    for target in kernels::AMD_TARGETS {
        match kernels::amd(target).unwrap_or_else(|error| panic!("{error:#}")) {
            CodeObject::Made { kernels } => {
                assert_eq!(kernels, Kernel::all().len() + 1, "{target}");
            }
            CodeObject::Skipped { why } => println!("SKIPPED {target}: {why}"),
        }
    }
}
