"""Root directories of containers, made of what this machine has."""

import re
import shutil
import subprocess
from pathlib import Path


def libraries(program: str) -> list[Path]:
    """The dynamic linker and the libraries of a program of this machine."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", done.stdout)]


def image_library(name: str) -> Path:
    """A library of this machine's C library."""
    (linker, libc) = sorted(libraries("/bin/sh"), key=lambda path: "libc" in path.name)
    assert linker
    return libc.with_name(name)


def make_root(root: Path, *programs: str) -> Path:
    """Makes a root with programs below /bin and what they need to run."""
    for place in ("bin", "lib", "lib64", "dev/shm", "proc", "tmp"):
        (root / place).mkdir(parents=True, exist_ok=True)
    for program in programs:
        shutil.copy(program, root / "bin" / Path(program).name)
        # The Shim needs one that is part of each glibc, but that no program may need.
        for library in (*libraries(program), image_library("libdl.so.2")):
            folder = "lib64" if library.parent.name == "lib64" else "lib"
            shutil.copy(library, root / folder / library.name)
    return root
