"""Runs the kernels in SPIR-V on a processor: opencl.py HOST_LIBRARY SPIRV

Compares every kernel bit for bit with the host library, as `device.py check` does, through the first OpenCL implementation
that takes SPIR-V. Intel's for processors is on PyPI; `gpu/kernels/README.md` has the commands. Needs numpy.
"""

import ctypes
import struct
import sys

import device

HANDLE = ctypes.c_void_p
IL_VERSION = 0x105B
BUILD_LOG = 0x1183
ANY_DEVICE = 0xFFFFFFFF


def modules(path):
    """The modules of reduce.spv by name, in order."""
    data, found, at = open(path, "rb").read(), {}, 0
    while at < len(data):
        name_len, module_len = struct.unpack_from("<II", data, at)
        name = data[at + 8 : at + 8 + name_len].decode()
        at += 8 + name_len
        found[name] = data[at : at + module_len]
        at += module_len
    return found


class OpenCl:
    """What `device.check` wants of a device. Device memory is host memory."""

    def __init__(self):
        self.cl = ctypes.CDLL("libOpenCL.so.1")
        for name in ["clCreateContext", "clCreateCommandQueue", "clCreateProgramWithIL", "clCreateKernel"]:
            getattr(self.cl, name).restype = HANDLE
        count = ctypes.c_uint()
        self("clGetPlatformIDs", 0, None, ctypes.byref(count))
        platforms = (HANDLE * count.value)()
        self("clGetPlatformIDs", count, platforms, None)
        text = ctypes.create_string_buffer(4096)
        for platform in platforms:
            self.device = HANDLE()
            self("clGetDeviceIDs", HANDLE(platform), ctypes.c_uint64(ANY_DEVICE), 1, ctypes.byref(self.device), None)
            self("clGetDeviceInfo", self.device, IL_VERSION, ctypes.c_size_t(4096), text, None)
            if b"SPIR-V" in text.value:
                break
        else:
            raise SystemExit(f"SKIPPED the kernels in SPIR-V: none of {count.value} OpenCL platforms takes SPIR-V")
        self.context = self.make("clCreateContext", None, 1, ctypes.byref(self.device), None, None)
        self.queue = self.make("clCreateCommandQueue", self.context, self.device, ctypes.c_uint64(0))
        self.kept = []

    def __call__(self, name, *arguments):
        status = getattr(self.cl, name)(*arguments)
        if status != 0:
            raise SystemExit(f"{name}: error {status}")

    def make(self, name, *arguments):
        status = ctypes.c_int()
        made = getattr(self.cl, name)(*arguments, ctypes.byref(status))
        if status.value != 0:
            raise SystemExit(f"{name}: error {status.value}")
        return HANDLE(made)

    def load(self, path):
        return modules(path), 0

    def function(self, module, name):
        image = module[name]
        program = self.make("clCreateProgramWithIL", self.context, image, ctypes.c_size_t(len(image)))
        if self.cl.clBuildProgram(program, 0, None, b"", None, None) != 0:
            text = ctypes.create_string_buffer(1 << 16)
            self("clGetProgramBuildInfo", program, self.device, BUILD_LOG, ctypes.c_size_t(1 << 16), text, None)
            raise SystemExit(f"{name}: {text.value.decode()}")
        return self.make("clCreateKernel", program, name.encode())

    def attribute(self, function, which):
        return 0

    def memory(self, size):
        buffer = ctypes.create_string_buffer(size + 16)
        self.kept.append(buffer)
        return (ctypes.addressof(buffer) + 15) // 16 * 16

    def write(self, pointer, array):
        ctypes.memmove(pointer, array.ctypes.data, array.nbytes)

    def read(self, pointer, array):
        ctypes.memmove(array.ctypes.data, pointer, array.nbytes)

    def launch(self, function, args, grid, block):
        self("clSetKernelArg", function, 0, ctypes.c_size_t(ctypes.sizeof(args)), ctypes.byref(args))
        whole, group = ctypes.c_size_t(grid * block), ctypes.c_size_t(block)
        self("clEnqueueNDRangeKernel", self.queue, function, 1, None, ctypes.byref(whole), ctypes.byref(group), 0, None, None)
        self("clFinish", self.queue)


if __name__ == "__main__":
    host_library, spirv = sys.argv[1:]
    sys.exit(0 if device.check(host_library, spirv, OpenCl(), list(modules(spirv))) else 1)
