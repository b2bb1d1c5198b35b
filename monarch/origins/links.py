"""Resolution of symbolic links, with one lstat for each name that they pass.

The steps are those of path_resolution(7). The kernel would look up all names on the way
again for each link; this code looks up each name once, however many links pass it.
Where the kernel may refuse to follow a link, the kernel itself resolves it, too.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from typing import Final, NamedTuple

from monarch import native
from monarch.catalog.block import Records
from monarch.catalog.links import HOPS_MAX, Goal, join
from monarch.catalog.survey import Unmanaged
from monarch.native import ScanKind

_HERE: Final = (b"", b".", b"..")
_GUARDED: Final = stat.S_ISVTX | stat.S_IWOTH
"""In such a directory the kernel may refuse to follow links of other users (proc(5),
protected_symlinks)."""


class Found(NamedTuple):
    """The metadata of one name, as an item of an array, and its device."""

    found: Records
    number: int
    kind: ScanKind
    dev: int


class _Hop(NamedTuple):
    """A name that links pass; ``text`` is the target text of a link."""

    found: Found
    mode: int
    text: bytes | None


class _Way(NamedTuple):
    """The directory that the first names of a link lead to, and the names passed.

    Attributes:
        guarded: the kernel may refuse to follow this way.
    """

    real: bytes
    hops: tuple[bytes, ...]
    guarded: bool = False


class _Device(NamedTuple):
    """Whether rights can be read at no cost, and whether files are generated."""

    local: bool
    pseudo: bool


class Resolver:
    """Resolves links for several threads, with a cache of results.

    Args:
        fd: any open directory, for calls with absolute paths.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._hops: dict[bytes, _Hop | OSError] = {}
        self._ways: dict[tuple[bytes, bytes], _Way | Unmanaged] = {}
        self._devices: dict[int, _Device] = {}
        self._refuses = _has_refusing_mount()

    def hop(self, path: bytes) -> Found:
        """Return the metadata of a name passed by a link."""
        hop = self._look(path)
        assert not isinstance(hop, OSError)
        return hop.found

    def hop_goal(self, path: bytes) -> bytes | None:
        """Return the real path of the target of a hop, if the hop is a link."""
        hop = self._look(path)
        if isinstance(hop, OSError) or hop.text is None:
            return None
        goal = self._goal(os.path.dirname(path), hop.text, 0)
        return None if isinstance(goal, Unmanaged) else goal.path

    def follow(
        self, fd: int, here: bytes, names: Sequence[bytes]
    ) -> list[Goal | Unmanaged | None]:
        """Return the goals of the links with these names in an open directory.

        Args:
            here: the real path of the directory.

        Returns:
            None for a removed link.
        """
        texts = [_text_of(fd, name) for name in names]
        goals: list[Goal | Unmanaged | None] = [None] * len(names)
        together: dict[bytes, list[int]] = {}
        for number, text in enumerate(texts):
            if isinstance(text, bytes):
                together.setdefault(_head(text), []).append(number)
            else:
                goals[number] = text
        guarded = self._refuses or _is_guarded(os.fstat(fd).st_mode)
        for head, numbers in together.items():
            last = [_last(texts[number]) for number in numbers]
            found = self._goals(here, head, last)
            for number, goal in zip(numbers, found, strict=True):
                doubt = guarded or (isinstance(goal, Goal) and goal.guarded)
                goals[number] = _asked(fd, names[number], goal) if doubt else goal
        return goals

    def _goal(self, here: bytes, text: bytes, depth: int) -> Goal | Unmanaged:
        return self._goals(here, _head(text), [_last(text)], depth)[0]

    def _goals(
        self, here: bytes, head: bytes, last: Sequence[bytes], depth: int = 0
    ) -> list[Goal | Unmanaged]:
        """Resolve paths that differ only in their last name."""
        way = self._way(here, head)
        if isinstance(way, Unmanaged):
            return [way] * len(last)
        ends = [name for name in last if name not in _HERE]
        found = iter(self._find(way.real, ends)) if ends else iter(())
        return [
            self._directory(way, name)
            if name in _HERE
            # A separate step for each name that is a link.
            else self._end(way, name, next(found), depth)
            for name in last
        ]

    def _find(self, directory: bytes, names: list[bytes]) -> list[Found | OSError]:
        """Return the metadata of names in a directory."""
        try:
            fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
        except OSError as error:
            return [error] * len(names)
        try:
            local = self._device_of(fd).local
            found = native.find_names(fd, names, rights=local)
        finally:
            os.close(fd)
        return _split(found)

    def _device_of(self, fd: int) -> _Device:
        dev = os.fstat(fd).st_dev
        device = self._devices.get(dev)
        if device is None:
            device = _Device(native.rights_are_local(fd), native.is_pseudo(fd))
            self._devices[dev] = device
        return device

    def _note_device(self, directory: bytes, dev: int) -> None:
        if dev not in self._devices:
            fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
            try:
                self._device_of(fd)
            finally:
                os.close(fd)

    def _directory(self, way: _Way, name: bytes) -> Goal | Unmanaged:
        """Return the goal of a path that ends in a slash or dots."""
        last = self._way(way.real, name)
        if isinstance(last, Unmanaged):
            return last
        hop = self._look(last.real)
        if isinstance(hop, OSError):
            return fault_of(hop)
        self._note_device(last.real, hop.found.dev)
        return self._judged(Goal(last.real, way.hops, *hop.found, way.guarded))

    def _end(
        self, way: _Way, name: bytes, found: Found | OSError, depth: int
    ) -> Goal | Unmanaged:
        path = join(way.real, name)
        if isinstance(found, OSError):
            return fault_of(found)
        if found.kind is not ScanKind.LINK:
            return self._judged(Goal(path, way.hops, *found, way.guarded))
        hop = self._look(path)
        if isinstance(hop, OSError):
            return fault_of(hop)
        if hop.text is None or depth == HOPS_MAX:
            return Unmanaged.LINK_LOOP
        goal = self._goal(way.real, hop.text, depth + 1)
        if isinstance(goal, Unmanaged):
            return goal
        hops = tuple(dict.fromkeys((*way.hops, path, *goal.hops)))
        return goal._replace(hops=hops, guarded=goal.guarded or way.guarded)

    def _judged(self, goal: Goal) -> Goal | Unmanaged:
        device = self._devices.get(goal.dev)
        return Unmanaged.LINK_PSEUDO if device and device.pseudo else goal

    def _way(self, here: bytes, head: bytes) -> _Way | Unmanaged:
        """Resolve the first names of a path; all of them must be directories."""
        key = (b"" if head.startswith(b"/") else here, head)
        way = self._ways.get(key)
        if way is None:
            try:
                way = self._walk(here, head)
            except OSError as error:
                way = fault_of(error)
            self._ways[key] = way
        return way

    def _walk(self, here: bytes, text: bytes) -> _Way:
        here = b"/" if text.startswith(b"/") else here
        steps, hops, guarded, links = _steps(text), dict[bytes, None](), False, 0
        while steps:
            name = steps.pop()
            if name == b"..":
                here = os.path.dirname(here)
                continue
            path = join(here, name)
            hop = self._look(path)
            if isinstance(hop, OSError):
                raise hop
            hops[path] = None
            if hop.text is not None:
                links += 1
                guarded |= self._is_guarded(here)
                here = b"/" if hop.text.startswith(b"/") else here
                steps += _steps(hop.text)
            elif stat.S_ISDIR(hop.mode):
                here = path
            else:
                raise NotADirectoryError(errno.ENOTDIR, "", path)
            if links > HOPS_MAX:
                raise OSError(errno.ELOOP, "", path)
        return _Way(here, tuple(hops), guarded)

    def _is_guarded(self, directory: bytes) -> bool:
        hop = self._look(directory)
        return isinstance(hop, OSError) or _is_guarded(hop.mode)

    def _look(self, path: bytes) -> _Hop | OSError:
        hop = self._hops.get(path)
        if hop is None:
            hop = self._looked(path)
            self._hops[path] = hop
        return hop

    def _looked(self, path: bytes) -> _Hop | OSError:
        found = native.find_names(self._fd, [path], rights=False)
        one = _split(found)[0]
        if isinstance(one, OSError):
            return one
        mode = int(found["mode"][0])
        try:
            return _Hop(one, mode, os.readlink(path) if stat.S_ISLNK(mode) else None)
        except OSError as error:
            return error


def fault_of(error: OSError) -> Unmanaged:
    """Return why a name, or a link to it, is left to the origin."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Unmanaged.LINK_DANGLING
    if error.errno == errno.ELOOP:
        return Unmanaged.LINK_LOOP
    refused = error.errno in (errno.EACCES, errno.EPERM)
    return Unmanaged.UNREADABLE if refused else Unmanaged.FAILED


def _split(found: Records) -> list[Found | OSError]:
    """Return the result of each looked-up name, or its error."""
    results: list[Found | OSError] = []
    for number, (status, dev) in enumerate(
        zip(found["status"].tolist(), found["dev"].tolist(), strict=True)
    ):
        if status:
            results.append(OSError(-status, os.strerror(-status)))
            continue
        # Each name is compared with its own device, because links lead to mounts, too.
        _, kinds = native.make_rows(found[number : number + 1], dev)
        results.append(Found(found, number, ScanKind(kinds[0]), dev))
    return results


def _text_of(fd: int, name: bytes) -> bytes | Unmanaged | None:
    try:
        return os.readlink(name, dir_fd=fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        return fault_of(error)


def _asked(
    fd: int, name: bytes, goal: Goal | Unmanaged | None
) -> Goal | Unmanaged | None:
    """Return the goal if the kernel also follows the link to it."""
    if not isinstance(goal, Goal):
        return goal
    try:
        found = os.stat(name, dir_fd=fd)
    except OSError as error:
        return fault_of(error)
    same = found.st_ino == int(goal.found["ino"][goal.number])
    return goal if same else Unmanaged.FAILED


def _head(text: bytes) -> bytes:
    """Return the part before the last name, including the slash."""
    return text[: text.rfind(b"/") + 1]


def _last(text: bytes | Unmanaged | None) -> bytes:
    assert isinstance(text, bytes)
    return text[text.rfind(b"/") + 1 :]


def _steps(text: bytes) -> list[bytes]:
    """Return the names of a path, in reverse order."""
    return [name for name in text.split(b"/") if name not in (b"", b".")][::-1]


def _is_guarded(mode: int) -> bool:
    return mode & _GUARDED == _GUARDED


def _has_refusing_mount() -> bool:
    """Return whether links are not followed on some mount (mount(8), nosymfollow)."""
    try:
        with open("/proc/self/mountinfo", "rb") as mounts:
            return any(b"nosymfollow" in line for line in mounts)
    except OSError:
        return True
