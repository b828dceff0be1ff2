"""``python -m hetccl`` and ``hetccl``: become the program."""

import importlib.util
import os
import sys
from pathlib import Path

from . import PROGRAM


def ucx_folder():
    """The libraries of the wheel ``libucx-cu12`` or ``libucx-cu13``, or None without it."""
    found = importlib.util.find_spec("libucx")
    if found is None or not found.submodule_search_locations:
        return None
    for place in found.submodule_search_locations:
        folder = Path(place) / "lib"
        if (folder / "libucp.so.0").exists():
            return folder
    return None


def main():
    """Replaces this process; returns only where that fails."""
    if "HETCCL_UCX_LIB" not in os.environ:
        folder = ucx_folder()
        if folder is not None:
            os.environ["HETCCL_UCX_LIB"] = str(folder)
    try:
        os.execv(PROGRAM, ["hetccl", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"hetccl: {PROGRAM} can't be started: {error}. Install the wheel again (pip install --force-reinstall hetccl)")


if __name__ == "__main__":
    main()
