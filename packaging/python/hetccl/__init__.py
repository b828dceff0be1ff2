"""Where hetccl's program and libraries are in this installation."""

from pathlib import Path

#: The program ``hetccl``.
PROGRAM = Path(__file__).parent / "bin" / "hetccl"
#: The folder with ``libnccl.so.2`` and ``librccl.so.1``.
LIBRARIES = Path(__file__).parent / "lib" / "hetccl"
