"""Runs the kernels on an NVIDIA GPU: device.py check HOST_LIBRARY PTX, or device.py bench PTX...

`check` compares every kernel bit for bit with the host library, made of the same source by

    c++ -std=c++17 -O2 -ffp-contract=off -shared -fPIC gpu/kernels/host.cpp -o HOST_LIBRARY

on random bits, NaN and subnormal numbers among them, of which only f32 and f64 NaN may differ in their payload.
`bench` prints the memory traffic of some kernels beside that of the driver's device-to-device copy. Needs numpy.
"""

import ctypes
import re
import sys
import time

import numpy as np

SIZES = dict(i8=1, u8=1, f8e4m3=1, f8e5m2=1, i16=2, u16=2, f16=2, bf16=2, i32=4, u32=4, f32=4, i64=8, u64=8, f64=8)
SIZES |= dict(c64=8, c128=16, f32_i32=8, f64_i32=16, i64_i32=16, i32_i32=8, i16_i32=8)
# Where f32 and f64 lie in an element, for the NaN rule.
FLOATS = dict(f32="f4", c64="f4", f64="f8", c128="f8")


class Args(ctypes.Structure):
    _fields_ = [
        ("inputs", ctypes.c_uint64 * 8),
        ("output", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("inputs_len", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("scalar", ctypes.c_uint64),
    ]


class Device:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)
        units = ctypes.c_int()
        self("cuDeviceGetAttribute", ctypes.byref(units), 16, device)
        self.units = units.value

    def __call__(self, name, *arguments):
        status = getattr(self.cuda, name)(*arguments)
        if status != 0:
            raise SystemExit(f"{name}: error {status}")

    def load(self, ptx):
        module = ctypes.c_void_p()
        start = time.time()
        self("cuModuleLoadData", ctypes.byref(module), open(ptx, "rb").read() + b"\0")
        return module, time.time() - start

    def function(self, module, name):
        function = ctypes.c_void_p()
        self("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def attribute(self, function, which):
        value = ctypes.c_int()
        self("cuFuncGetAttribute", ctypes.byref(value), which, function)
        return value.value

    def memory(self, size):
        pointer = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value

    def write(self, pointer, array):
        self("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes))

    def read(self, pointer, array):
        self("cuMemcpyDtoH_v2", array.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(pointer), ctypes.c_size_t(array.nbytes))

    def launch(self, function, args, grid, block):
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(args))
        self("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, None, arguments, None)

    def seconds(self, work, times):
        begin, end, elapsed = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_float()
        self("cuEventCreate", ctypes.byref(begin), 0)
        self("cuEventCreate", ctypes.byref(end), 0)
        best = 1e9
        for _ in range(3):
            work()
            self("cuEventRecord", begin, None)
            for _ in range(times):
                work()
            self("cuEventRecord", end, None)
            self("cuEventSynchronize", end)
            self("cuEventElapsedTime_v2" if hasattr(self.cuda, "cuEventElapsedTime_v2") else "cuEventElapsedTime", ctypes.byref(elapsed), begin, end)
            best = min(best, elapsed.value / 1e3 / times)
        return best


def names(ptx):
    return re.findall(r"\.entry (\w+)", open(ptx).read())


def element(name):
    if name == "hetccl_copy":
        return "u8"
    return name.split("_", 3)[3]


def check(host_library, ptx, device=None, kernels=None):
    device, kernels = device or Device(), kernels or names(ptx)
    host = ctypes.CDLL(host_library)
    module, _ = device.load(ptx)
    rng = np.random.default_rng(1)
    room = 1 << 21
    pointers = [device.memory(room) for _ in range(9)]
    worst, checks = 0, 0
    for name in kernels:
        function, kind = device.function(module, name), element(name)
        size = SIZES[kind]
        if device.attribute(function, 3) != 0:
            print(f"{name}: {device.attribute(function, 3)} bytes of local memory a thread")
        for count, offset, inputs_len, in_place in [
            (1 << 16, 0, 1, False), (100003, 0, 2, False), (100003, 0, 2, True), (100003, 1, 2, False),
            (65537, 0, 3, False), (65537, 1, 3, True), (1000, 0, 8, False), (99991, 0, 8, True), (1, 0, 2, False),
            (17, 1, 5, False), (0, 0, 2, False),
        ]:
            count = min(count, (room - 64) // size)
            arrays = [rng.integers(0, 256, (count + 1) * size, np.uint8) for _ in range(inputs_len)]
            # Every other run has numbers of like size, which cancel, tie and round; and small indices, which tie.
            if inputs_len != 2 or in_place:
                for array in arrays[1:]:
                    keep = rng.integers(0, 2, array.size, np.uint8).astype(bool)
                    array[keep] = arrays[0][keep]
            if inputs_len == 1 and size == 2:
                arrays[0][: 1 << 17] = np.arange(1 << 16, dtype=np.uint16).view(np.uint8)
            scalar = int(rng.integers(0, 1 << 63))
            if "_avg_" in name:
                scalar = [3, 8, 0, 1 << 33][count % 4]
            expected, got = np.zeros((count + 1) * size, np.uint8), np.zeros((count + 1) * size, np.uint8)
            if in_place:
                expected[:] = arrays[-1]
            args = Args()
            aligned = [np.zeros(a.size + 32, np.uint8) for a in arrays + [expected]]
            views = []
            for buffer, array in zip(aligned, arrays + [expected]):
                start = -buffer.ctypes.data % 16
                view = buffer[start : start + array.size]
                view[:] = array
                views.append(view)
            for k in range(inputs_len):
                args.inputs[k] = views[k].ctypes.data + offset * size
            args.output = views[-1].ctypes.data + offset * size
            if in_place:
                args.inputs[inputs_len - 1] = args.output
            args.count, args.inputs_len, args.scalar = count - offset if count else 0, inputs_len, scalar
            if name == "hetccl_copy":
                args.inputs_len = 1
            triple = ctypes.c_uint32 * 3
            getattr(host, name)((ctypes.c_void_p * 1)(ctypes.addressof(args)), triple(3, 1, 1), triple(64, 1, 1))
            expected = views[-1]
            for pointer, array in zip(pointers, arrays):
                device.write(pointer, array)
            device.write(pointers[8], arrays[-1] if in_place else got)
            for k in range(inputs_len):
                args.inputs[k] = pointers[k] + offset * size
            args.output = pointers[8] + offset * size
            if in_place:
                args.inputs[inputs_len - 1] = args.output
            device.launch(function, args, 7, 256)
            device.read(pointers[8], got)
            if kind in FLOATS:
                pair = [a[: a.size].view(FLOATS[kind]) for a in (np.array(expected), got)]
                nan = [np.isnan(a) for a in pair]
                for a, n in zip(pair, nan):
                    a[n] = np.nan
                expected, got = (a.view(np.uint8) for a in pair)
            bad = np.flatnonzero(np.asarray(expected) != got)
            checks += 1
            if bad.size:
                worst += 1
                i = bad[0] // size
                rows = [a[i * size : i * size + size].tobytes()[::-1].hex() for a in arrays + [np.array(expected), got]]
                print(f"DIFFERS {name} count {count} offset {offset} inputs {inputs_len} in place {in_place}: {bad.size} bytes, first element {i}: {rows} scalar {scalar:x}")
    print(f"{checks} runs of {len(kernels)} kernels compared with the host, {worst} differ")
    return worst == 0


def bench(*files):
    device = Device()
    total = 256 << 20
    pointers = [device.memory(total) for _ in range(9)]
    for pointer in pointers:
        device("cuMemsetD32_v2", ctypes.c_uint64(pointer), 0x01010101, ctypes.c_size_t(total // 4))
    copy = device.seconds(lambda: device("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(pointers[8]), ctypes.c_uint64(pointers[0]), ctypes.c_size_t(total), None), 20)
    peak = 2 * total / copy
    print(f"{device.units} multiprocessors; the driver's copy: {peak / 1e12:.2f} TB/s of traffic")
    for ptx in files:
        module, seconds = device.load(ptx)
        print(f"\n{ptx}: loaded in {seconds:.3f} s")
        registers = [device.attribute(device.function(module, name), 4) for name in names(ptx)]
        print(f"registers: {min(registers)} to {max(registers)}")
        shapes = [(2, 512), (4, 256), (4, 512), (8, 256), (8, 512), (16, 256), (32, 512)]
        print(f"{'':28} in  regs " + "".join(f"{g:>4}x{b}" for g, b in shapes))
        cases = [("hetccl_copy", 1)] + [("hetccl_reduce_sum_f32", n) for n in (1, 2, 3, 4, 8)]
        cases += [(f"hetccl_reduce_{what}", 2) for what in
                  "sum_f64 sum_u8 sum_i16 min_i32 max_u8 max_i16 prod_i8 prod_c64 prod_c128 lor_u16 sum_f16 sum_bf16 sum_i8 sum_i32 sum_f8e4m3 sum_f8e5m2 sum_c64 min_f16 max_i8 min_f8e4m3 prod_i64 band_u8 land_u8 land_i32 avg_f32 avg_bf16 avg_i32 avg_i8 premulsum_f16 minloc_f64_i32 maxloc_f32_i32".split()]
        cases += [("hetccl_reduce_sum_bf16", 8), ("hetccl_reduce_sum_f16", 8)]
        for name, inputs_len in cases:
            function, size = device.function(module, name), SIZES[element(name)]
            args = Args()
            args.inputs[:] = pointers[:8]
            args.output, args.count, args.inputs_len, args.scalar = pointers[8], total // size, inputs_len, 2
            line = f"{name:28} {inputs_len}  {device.attribute(function, 4):>4} "
            for grid, block in shapes:
                took = device.seconds(lambda: device.launch(function, args, grid * device.units, block), 10)
                line += f"{(inputs_len + 1) * total / took / peak * 100:>7.0f}%"
            print(line)


if __name__ == "__main__":
    if sys.argv[1] == "check":
        sys.exit(0 if check(*sys.argv[2:]) else 1)
    bench(*sys.argv[2:])
