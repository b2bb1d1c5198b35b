"""Ordinary programs read the right bytes when the origin holds only zeros."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.shim_fixtures import Board, Compile, zero

PROGRAMS = {
    "cat": "cat one.bin two.bin a/b/three.bin a/link.bin",
    "sha256sum": "sha256sum one.bin a/same.bin a/b/three.bin '..odd/x y'",
    "grep": "grep -c bin one.bin two.bin a/b/three.bin",
    "cp": "cp -r a {scratch}/copy && cat {scratch}/copy/b/three.bin",
    "cp -a": "cp -a one.bin a {scratch}/ && cat {scratch}/a/same.bin && "
    "stat -c '%n %s %a %Y %h' {scratch}/one.bin {scratch}/a/same.bin",
    "tar": "tar --xattrs --acls -cf - one.bin two.bin a ..odd | tar -xOf - | cksum",
    "dd": "dd if=two.bin bs=1k status=none | cksum",
    "head, tail": "head -c 100 one.bin; tail -c 100 two.bin",
    "cmp": "cmp one.bin a/same.bin; cmp one.bin two.bin; wc -c one.bin",
    "find, xargs": "find . -type f -print0 | sort -z | xargs -0 cat | cksum",
    "sort, awk": "sort two.bin one.bin | awk '{{ print substr($0, 1, 9) }}'",
    "bash read": "read -r -n 20 line < one.bin; echo $line",
    "python": "{python} -c \"import shutil, mmap, os\nf = open('one.bin', 'rb')\n"
    "print(mmap.mmap(f.fileno(), 0, prot=1)[:9], os.pread(f.fileno(), 5, 7))\n"
    "print(open('two.bin').read(7), os.stat('two.bin').st_size)\n"
    "print(sorted(e.name for e in os.scandir('a')), os.fstat(f.fileno()).st_nlink)\"",
    "python multiprocessing": "cat > {scratch}/pool.py <<'END'\n"
    "from multiprocessing import get_context\n"
    "def head(name):\n  return open(name).read(7)\n"
    "if __name__ == '__main__':\n  for kind in 'fork', 'spawn', 'forkserver':\n"
    "    with get_context(kind).Pool(2) as pool:\n"
    "      print(pool.map(head, ['one.bin', 'two.bin', 'a/b/three.bin']))\n"
    "END\n{python} {scratch}/pool.py",
}


def shell(
    board: Board, command: str, scratch: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    """Runs a shell command in the dataset."""
    scratch.mkdir()
    line = command.format(scratch=scratch, python=sys.executable)
    return subprocess.run(
        ["bash", "-c", line], cwd=board.root, env=env, capture_output=True, timeout=60
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_reads_right_from_a_zeroed_origin(board: Board, name: str) -> None:
    (board.root / "fifo").unlink()
    plain = dict(os.environ)
    expected = shell(board, PROGRAMS[name], board.folder / "0", plain)
    board.start()
    board.ask("publish-all")
    zero(board.root)

    got = shell(board, PROGRAMS[name], board.folder / "1", board.environ())
    without = shell(board, PROGRAMS[name], board.folder / "2", plain)

    def comparable(done: subprocess.CompletedProcess[bytes], run: bytes) -> bytes:
        scratch = os.fsencode(board.folder) + b"/" + run
        return (done.stdout + done.stderr).replace(scratch, b"SCRATCH")

    assert comparable(got, b"1") == comparable(expected, b"0")
    assert got.returncode == expected.returncode
    assert comparable(without, b"2") != comparable(expected, b"0")


def test_no_read_only_open_of_a_staged_file_reaches_the_origin(
    staged: Board,
) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("needs strace")
    log = staged.folder / "strace.log"
    script = (
        f"cd {staged.root}; cat one.bin a/b/three.bin; sha256sum two.bin a/same.bin"
    )
    env = staged.environ()
    inner = [
        "env",
        *(f"{name}={env[name]}" for name in ("LD_PRELOAD", "MONARCH_STAGING_RUN")),
    ]
    command = [strace, "-f", "-y", "-e", "trace=open,openat,openat2", "-o", str(log)]

    subprocess.run([*command, *inner, "sh", "-c", script], check=True, timeout=60)

    opened = [
        line
        for line in log.read_text(errors="replace").splitlines()
        if f"<{staged.root}/" in line.rpartition("=")[2] and "O_DIRECTORY" not in line
    ]
    assert opened == []
    assert staged.counters()["opens_hit_tier0"] == 4


def test_stdio_and_cpp_streams_are_redirected(board: Board, compiled: Compile) -> None:
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    source = board.folder / "stream.cc"
    source.write_text(
        "#include <fstream>\n#include <iostream>\nint main(int, char **v) {\n"
        "std::ifstream in(v[1]); std::string s(5, 0); in.read(&s[0], 5);\n"
        "std::cout << s; return !in; }\n"
    )
    program = board.folder / "stream"
    subprocess.run(["c++", "-o", str(program), str(source)], check=True)
    board.start()
    board.ask("publish-all")
    zero(board.root)

    assert board.run(program, board.root / "two.bin") == "two.b"
