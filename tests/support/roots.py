"""Root directories of containers, made of files of this machine."""

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


MUSL_READER = """
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char **names)
{
    char bytes[65536];
    long n, total = 0;
    for (int i = 1; i < count; i++) {
        int fd = open(names[i], O_RDONLY);
        while ((n = read(fd, bytes, sizeof(bytes))) > 0)
            total += n;
        close(fd);
    }
    printf("read %ld\\n", total);
    return 0;
}
"""


def make_musl_root(root: Path, compiler: str) -> Path:
    """Makes a root as Alpine's is: musl alone, and a program that reads files."""
    source = root.with_suffix(".c")
    source.write_text(MUSL_READER)
    for place in ("bin", "lib", "dev/shm", "proc", "tmp"):
        (root / place).mkdir(parents=True)
    subprocess.run([compiler, "-o", root / "bin" / "sh", source], check=True)
    (linker,) = Path("/lib").glob("ld-musl-*.so.1")
    shutil.copy(linker, root / "lib" / linker.name)
    return root


def make_root(root: Path, *programs: str) -> Path:
    """Makes a root with programs below /bin and the files that they need to run."""
    for place in ("bin", "lib", "lib64", "dev/shm", "proc", "tmp"):
        (root / place).mkdir(parents=True, exist_ok=True)
    for program in programs:
        shutil.copy(program, root / "bin" / Path(program).name)
        # The Shim needs a library that each glibc has, but that no program may need.
        for library in (*libraries(program), image_library("libdl.so.2")):
            folder = "lib64" if library.parent.name == "lib64" else "lib"
            shutil.copy(library, root / folder / library.name)
    return root
