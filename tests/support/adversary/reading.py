"""Further ways to read and to query, beside those used for every name."""

import ctypes
import glob
import mmap
import os
import subprocess
from collections.abc import Callable

from support.adversary import tree, truth
from support.adversary.descriptors import TAKES
from support.adversary.play import Play, operation
from support.adversary.truth import AT_FDCWD, BYTES_MAX, LIBC, attempt, digest
from support.adversary.writing import WAYS, WRITABLE

LIBC.fread.restype = ctypes.c_size_t


def by_stream(path: str) -> bytes:
    stream = LIBC.fopen(os.fsencode(path), b"re")
    if not stream:
        raise OSError(ctypes.get_errno(), path)
    content = ctypes.create_string_buffer(BYTES_MAX // 16)
    count = LIBC.fread(content, 1, len(content), ctypes.c_void_p(stream))
    LIBC.fclose(ctypes.c_void_p(stream))
    return content.raw[:count]


def by_map(path: str) -> bytes:
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return b""
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return view[:]


def by_folder(path: str) -> bytes:
    holder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        name = os.path.basename(path)
        with open(os.open(name, os.O_RDONLY, dir_fd=holder), "rb") as file:
            return file.read()
    finally:
        os.close(holder)


def by_path_descriptor(path: str) -> bytes:
    place = os.open(path, os.O_PATH)
    try:
        with open(f"/proc/self/fd/{place}", "rb") as file:
            return file.read()
    finally:
        os.close(place)


def by_working_folder(path: str) -> bytes:
    os.chdir(os.path.dirname(path) or ".")
    with open(os.path.basename(path), "rb") as file:
        return file.read()


def by_sendfile(path: str) -> bytes:
    output, into = os.pipe()
    try:
        with open(path, "rb") as file:
            # A pipe may hold less than the largest file.
            count = os.sendfile(into, file.fileno(), 0, BYTES_MAX // 32)
        return os.read(output, count) if count else b""
    finally:
        os.close(output)
        os.close(into)


def by_copy(path: str) -> bytes:
    words = ["cp", path, "../out/read-copy"]
    subprocess.run(words, check=True, capture_output=True)
    content = truth.raw_read("../out/read-copy")
    os.unlink("../out/read-copy")
    return content


def by_old_call(path: str) -> bytes:
    call = LIBC["openat64"]
    descriptor = call(AT_FDCWD, os.fsencode(path), os.O_RDONLY)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), path)
    with open(descriptor, "rb") as file:
        return file.read()


READS: tuple[Callable[[str], bytes], ...] = (
    *(by_stream, by_map, by_folder, by_path_descriptor, by_working_folder),
    *(by_sendfile, by_copy, by_old_call),
)


@operation("bytes", 3)
def read_otherwise(play: Play) -> str:
    """A file is read by another call than open and read."""
    path = play.path()
    true = truth.look_raw(path)
    if not isinstance(true.content, bytes) or not true.content:
        return "nothing to read"
    content = play.way(READS)(path)
    if content != true.content:
        told = f"{digest(true.content)} {digest(content)}"
        play.wrong.append(f"bytes of {path} otherwise: {told}")
    return "read"


@operation("names", 4)
def look_by_spellings(play: Play) -> str:
    """Reads the results of some spellings of names."""
    for _ in range(8):
        path = play.path()
        true = truth.look_raw(path)
        play.wrong += truth.differences(path, true, truth.look_shim(path, true))
    return "looked"


@operation("names", 2)
def open_without_following(play: Play) -> str:
    """A file is opened, unless its name is a link."""
    path = play.path()
    flags = os.O_RDONLY | os.O_NOFOLLOW
    results = []
    for call in (truth.raw_open, os.open):
        opened = attempt(call, path, flags)
        results.append(opened if isinstance(opened, str) else "opened")
        if not isinstance(opened, str):
            os.close(opened)
    if results[0] != results[1]:
        told = " ".join(results)
        play.wrong.append(f"open of {path} without following: {told}")
    return results[0]


@operation("names", 2)
def list_folder(play: Play) -> str:
    """What a directory lists, and the status of each name in it."""
    path = play.path((*tree.FOLDERS, *tree.FOLDER_LINKS, "../other"))
    with os.scandir(path) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        place = f"{path}/{name}"
        true = truth.look_raw(place)
        shown = truth.look_shim(place, true)
        play.wrong += truth.differences(place, true, shown)
    return " ".join(names) or "empty"


@operation("names", 1)
def status_by_folder(play: Play) -> str:
    """The status of a name, asked relative to the directory that holds it."""
    path, follow = play.path(), play.pick((True, False))
    holder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        name = os.path.basename(path)
        found = os.stat(name, dir_fd=holder, follow_symlinks=follow)
    finally:
        os.close(holder)
    true, shown = truth.raw_stat(path, follow), truth.shim_fields(found)
    if true != shown:
        play.wrong.append(f"stat of {path} by its folder: {true} {shown}")
    return "asked"


@operation("names", 1)
def resolve(play: Play) -> str:
    """Where a name leads to at last."""
    found = os.path.realpath(play.path())
    return os.path.relpath(found, play.ground.base)


@operation("names", 1)
def match_names(play: Play) -> str:
    """The matches of patterns."""
    return str(sorted(glob.glob(play.pick(("*/f*", "**/f0", "*")), recursive=True)))


@operation("attributes", 2)
def may_access(play: Play) -> str:
    """The result of access()."""
    path = play.path()
    modes = (os.F_OK, os.R_OK, os.W_OK, os.X_OK)
    plain = [os.access(path, mode) for mode in modes]
    return f"{plain} {os.access(path, os.R_OK, effective_ids=True)}"


@operation("descriptors", 3)
def map_outlives_change(play: Play) -> str:
    """A mapping of a file stays as it is when the name goes to another one."""
    path = play.path(tree.CATALOGUED)
    before = truth.raw_read(path)
    if not before:
        return "empty"
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view,
    ):
        result = attempt(play.way(TAKES), play, path)
        if view[:] != before:
            told = f"{digest(before)} {digest(view[:])}"
            play.wrong.append(f"bytes of a mapping of {path}: {told}")
    return f"mapped, {result}".lower()


@operation("mounts", 4)
def write_by_bound_folder(play: Play) -> str:
    """A root is mounted at another place as well, and written to there."""
    play.need("mounts")
    folder, name = play.pick((("main", "f0"), ("main/a", "f1"), ("other", "g0")))
    source, place = play.ground.base / folder, play.at("../out/bound")
    os.makedirs(place, exist_ok=True)
    words = ["mount", "--bind", str(source), place]
    subprocess.run(words, check=True, capture_output=True)
    try:
        play.way(WAYS)(play, f"{place}/{name}")
    finally:
        subprocess.run(["umount", "-l", place], check=True, capture_output=True)
    return "done"


@operation("bytes", 2)
def write_in_working_folder(play: Play) -> str:
    """A name is written to in the directory that holds it."""
    path = play.path(WRITABLE)
    os.chdir(os.path.dirname(path) or ".")
    try:
        play.way(WAYS)(play, os.path.basename(path))
    finally:
        os.chdir(play.ground.main)
    return "done"
