"""Compiles CUDA C++ to PTX with NVRTC: nvrtc.py ARCHITECTURE SOURCE OUTPUT

NVRTC comes from the package nvidia-cuda-nvrtc-cu12 of the Python that runs this; no GPU and no driver is needed.
"""

import ctypes
import pathlib
import sys
import sysconfig


def main(architecture, source, output):
    folder = pathlib.Path(sysconfig.get_paths()["purelib"], "nvidia", "cuda_nvrtc", "lib")
    nvrtc = ctypes.CDLL(str(folder / "libnvrtc.so.12"))
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p

    def check(status, what):
        if status != 0:
            raise SystemExit(f"{what}: {nvrtc.nvrtcGetErrorString(status).decode()}")

    path = pathlib.Path(source)
    program = ctypes.c_void_p()
    text, name = path.read_bytes(), path.name.encode()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None), "nvrtcCreateProgram")
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
    status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    check(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)), "nvrtcGetProgramLogSize")
    log = ctypes.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetProgramLog(program, log), "nvrtcGetProgramLog")
    sys.stderr.write(log.value.decode())
    check(status, "nvrtcCompileProgram")
    check(nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)), "nvrtcGetPTXSize")
    ptx = ctypes.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetPTX(program, ptx), "nvrtcGetPTX")
    pathlib.Path(output).write_bytes(ptx.value)


if __name__ == "__main__":
    main(*sys.argv[1:])
