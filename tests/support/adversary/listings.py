"""Directories listed, in parts and as a whole, and missing names."""

import ctypes
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from support.adversary import tree, truth
from support.adversary.naming import RENAMES
from support.adversary.play import Play, operation

LISTED = ("", *tree.FOLDERS, *tree.FOLDER_LINKS, "../other", "../out")
MISSING = (
    "none",
    "a/none",
    "a/none/below",
    "b/F0",
    ".none",
    "cur/none",
    "../other/none",
)
NEW = ("fresh", "a/fresh", "b/fresh", "a/deep/fresh", "ex/fresh", "../other/fresh")


class Entry(ctypes.Structure):
    """One name, as readdir() returns it."""

    _fields_ = (
        ("ino", ctypes.c_uint64),
        ("off", ctypes.c_int64),
        ("bytes", ctypes.c_ushort),
        ("type", ctypes.c_ubyte),
        ("name", ctypes.c_char * 256),
    )


def library(name: str | None) -> ctypes.CDLL:
    """The calls on streams: those that programs find, or by its name libc's own."""
    found = ctypes.CDLL(name)
    found.opendir.restype = ctypes.c_void_p
    found.readdir.restype = ctypes.POINTER(Entry)
    found.telldir.restype = ctypes.c_long
    found.readdir.argtypes = found.telldir.argtypes = [ctypes.c_void_p]
    found.rewinddir.argtypes = found.closedir.argtypes = [ctypes.c_void_p]
    found.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
    return found


SHOWN, TRUE = library(None), library("libc.so.6")
Name = tuple[str, int, int]


@contextmanager
def stream(path: str, by: ctypes.CDLL) -> Iterator[int]:
    """A directory stream."""
    opened = by.opendir(os.fsencode(path or "."))
    if not opened:
        raise NotADirectoryError(20, path)
    try:
        yield opened
    finally:
        by.closedir(opened)


def one(opened: int, by: ctypes.CDLL) -> Name | None:
    """The next name, its inode and type."""
    found = by.readdir(opened)
    if not found:
        return None
    entry = found.contents
    return os.fsdecode(entry.name), entry.ino, entry.type


def rest(opened: int, by: ctypes.CDLL) -> list[Name]:
    """All names up to the end."""
    return list(iter(lambda: one(opened, by), None))


def listing(path: str, by: ctypes.CDLL) -> list[Name] | str:
    """All names of a directory, sorted; the dots are compared by their names."""
    try:
        with stream(path, by) as opened:
            names = rest(opened, by)
    except NotADirectoryError:
        return "refused"
    dots = (".", "..")
    return sorted((name, name not in dots and ino, kind) for name, ino, kind in names)


def named(path: str) -> set[str]:
    """The names in a directory, as the kernel has them."""
    with stream(path, TRUE) as opened:
        return {name for name, _, _ in rest(opened, TRUE)}


def compared(path: str) -> list[str]:
    """The errors in a listing."""
    true, shown = listing(path, TRUE), listing(path, SHOWN)
    return [] if true == shown else [f"listing of {path!r}: {true} {shown}"]


def compare_all() -> list[str]:
    """The errors in the listings of all directories."""
    return [wrong for path in LISTED for wrong in compared(path)]


@operation("listings", 4)
def list_all(play: Play) -> str:
    """Every directory is listed, in its own working directory."""
    os.chdir(play.pick(("a", "b", "cur", "../other")))
    play.wrong += compared(".") + compared("..")
    return "listed"


@operation("listings", 4)
def list_what_comes(play: Play) -> str:
    """A name is created in a directory that has been listed."""
    name = play.pick(NEW)
    folder = os.path.dirname(name)
    play.wrong += compared(folder)
    result = truth.attempt(play.way((_make, os.mkdir, os.mkfifo, _link)), name)
    play.wrong += compared(folder)
    return str(result)


def _make(name: str) -> None:
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def _link(name: str) -> None:
    os.link("f0", name)


@operation("listings", 4)
def list_what_goes(play: Play) -> str:
    """A name is removed from a directory that has been listed."""
    name = play.name((*tree.FILES, *tree.DEEP, *NEW))
    folder = os.path.dirname(name)
    play.say(name)
    play.wrong += compared(folder)
    result = truth.attempt(play.way((os.unlink, os.remove, os.rmdir)), name)
    play.wrong += compared(folder)
    return str(result)


@operation("listings", 3)
def list_what_moves(play: Play) -> str:
    """A name leaves one directory for another."""
    one, two = play.pick((*tree.FILES, "a/deep", "cur")), play.pick(NEW)
    result = truth.attempt(play.way(RENAMES[:3]), play.at(one), play.at(two))
    for name in (one, two):
        play.wrong += compared(os.path.dirname(name))
    return str(result)


@operation("listings", 3)
def seek_in_listing(play: Play) -> str:
    """A stream is read in parts, and places in it are returned to."""
    path = play.pick(LISTED)
    with stream(path, SHOWN) as opened:
        places = [(SHOWN.telldir(opened), rest(opened, SHOWN))]
        SHOWN.rewinddir(opened)
        while one(opened, SHOWN):
            place = SHOWN.telldir(opened)
            left = rest(opened, SHOWN)
            SHOWN.seekdir(opened, place)
            places.append((place, left))
        for place, left in play.random.sample(places, len(places)):
            SHOWN.seekdir(opened, place)
            if rest(opened, SHOWN) != left:
                play.wrong.append(f"listing of {path!r} from {place}: not {left}")
    return "sought"


@operation("listings", 3)
def read_on_after_change(play: Play) -> str:
    """A stream is read on after names were created and removed."""
    path, new = play.pick(("", "a", "b", "../other")), play.pick(NEW)
    gone = play.pick(tree.FILES)
    with stream(path, SHOWN) as opened:
        before = named(path)
        names = [
            found[0] for found in (one(opened, SHOWN), one(opened, SHOWN)) if found
        ]
        results = truth.attempt(_make, new), truth.attempt(os.unlink, gone)
        names += [name for name, _, _ in rest(opened, SHOWN)]
    stays = before & named(path)
    if len(set(names)) < len(names) or not stays <= set(names):
        play.wrong.append(f"listing of {path!r} in two parts: {stays} {names}")
    return str(results)


@operation("listings", 2)
def inherit_listing(play: Play) -> str:
    """A stream is read on in a child and in its parent."""
    path = play.pick(LISTED)
    with stream(path, SHOWN) as opened:
        first = one(opened, SHOWN)
        child = os.fork()
        if not child:
            names = [name for name, _, _ in rest(opened, SHOWN)]
            twice = len(set(names)) < len(names) or (first and first[0] in names)
            os._exit(bool(twice))
        status = os.waitpid(child, 0)[1]
    return str(status)


LINK_ASKS: tuple[Callable[[str], object], ...] = (os.lstat, os.readlink)
ASKS: tuple[Callable[[str], object], ...] = (
    *LINK_ASKS,
    *(os.stat, os.listdir),
    # The new entry may be a pipe whose other end is never opened.
    lambda path: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK)),
    lambda path: os.close(os.open(path, os.O_RDONLY | os.O_DIRECTORY)),
    lambda path: os.access(path, os.R_OK),
    lambda path: os.access(path, os.F_OK),
)


@operation("listings", 4)
def ask_for_missing(play: Play) -> str:
    """A name is asked for that may not be there; then it comes, and it goes."""
    name = play.pick((*MISSING, *NEW, *tree.NEW))
    path = play.pick((name, play.at(name), f"./{name}", f"a/../{name}"))
    told = []
    for change in (None, _make, None, os.unlink):
        if change:
            told.append(str(truth.attempt(change, name)))
        for ask in ASKS:
            # The new entry may be a dangling link.
            true = truth.attempt(truth.raw_stat, path, ask not in LINK_ASKS)
            there = not isinstance(true, str) and stat.S_IFMT(true[0])
            shown = truth.attempt(ask, path)
            if not there and shown not in (False, true):
                play.wrong.append(f"{path} is {true}, but shown as {shown}")
            if there and shown == "ENOENT":
                play.wrong.append(f"{path} is shown as not there")
    return " ".join(told)
