"""Checks the places of a job's files: the run directory, memory, tiers, datasets."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from monarch.codec import AUTO, PLAIN, Codec
from monarch.config.request import index_directory
from monarch.doctor.findings import Finding, note, ok, prevents, warning
from monarch.errors import MonarchError, UsageError
from monarch.native import codec_library, home
from monarch.origins.index_text import known_links
from monarch.origins.named import name_roots
from monarch.origins.saved_indexes import SavedIndexes
from monarch.tiers import Device, Tier, TierSettings, check_places, measure, open_tier
from monarch.tiers.memory import Memory, read_memory, tightest
from monarch.tiers.probe import Probe, grants_leases
from monarch.units import format_count, format_size

if TYPE_CHECKING:
    from monarch.config import Config

HOME_BASE: Final = Path("/dev/shm")
SEGMENTS_BYTES: Final = 64 << 20
INODES_MIN: Final = 10_000
IN_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
UNKNOWN: Final = "unknown"
SHARED: Final = frozenset(
    {
        *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "ceph", "9p"),
        *("afs", "panfs", "pvfs2", "wekafs", "virtiofs", "glusterfs", "orangefs"),
    }
)
"""Types of file systems that are mounted over a network."""


@dataclass(frozen=True, slots=True)
class FileSystem:
    """The file system of a path.

    Attributes:
        kind: its type, such as `ext4`; UNKNOWN where /proc does not show it.
        options: the options of its mount.
    """

    kind: str
    options: frozenset[str] = frozenset()

    @property
    def is_shared(self) -> bool:
        """Whether other nodes may see the same files; FUSE counts as a network type."""
        return self.kind in SHARED or self.kind.startswith("fuse")


def file_system(path: Path) -> FileSystem:
    """Return the file system of a path."""
    import psutil

    place = os.path.realpath(path)
    best, found = "", FileSystem(UNKNOWN)
    try:
        mounts = psutil.disk_partitions(all=True)
    except OSError:  # /proc is not mounted
        return found
    for mount in mounts:
        point = mount.mountpoint
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # the last of several mounts counts
            options = frozenset(mount.opts.split(","))
            best, found = point, FileSystem(mount.fstype, options)
    return found


# -- the run directory and memory ---------------------------------------------------


def check_run_directory(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check the place of the shared memory between agent and programs."""
    check = "run directory"
    given = environ.get("MONARCH_STAGING_RUN_DIR")
    base = Path(given) if given else HOME_BASE
    if not base.is_dir() or not os.access(base, os.W_OK | os.X_OK):
        fix = "set MONARCH_STAGING_RUN_DIR to a private directory in memory"
        yield prevents(check, f"{base} is not a writable directory", fix)
        return
    yield from _privacy(base, given is not None)
    kind = file_system(base)
    free = measure(base).free_bytes
    text = f"{base}: {kind.kind}, {_size(free)} free"
    if free is not None and free < SEGMENTS_BYTES:
        yield warning(check, text, f"remove what you do not need from {base}")
    elif kind.kind not in {*IN_MEMORY, UNKNOWN}:
        fix = "set MONARCH_STAGING_RUN_DIR to a directory in a tmpfs"
        yield warning(check, f"{text}; it should be in memory", fix)
    else:
        yield ok(check, text)
    if "noexec" in kind.options:
        yield note(
            check,
            f"{base} is mounted noexec: containers need the installed shim as well",
            "bind what `monarch env` prints",
        )
    with tempfile.TemporaryDirectory(prefix="monarch-doctor-", dir=base) as folder:
        if not grants_leases(Path(folder)):
            yield warning(
                check,
                f"{base} grants no write leases (F_SETLEASE): files that are not kept "
                "are not passed through memory",
                "set MONARCH_STAGING_RUN_DIR to a directory in a tmpfs of this node",
            )


def _privacy(base: Path, is_given: bool) -> Iterator[Finding]:
    """Check that a given directory is private; /dev/shm is shared by all users."""
    found = base.stat()
    mode = stat.S_IMODE(found.st_mode)
    if is_given and (found.st_uid != os.geteuid() or mode != 0o700):
        text = f"{base} must be yours alone (owner {found.st_uid}, mode {mode:04o})"
        yield prevents("run directory", text, f"chmod 700 {base}, or another directory")
    plain = base / f"monarch-{os.geteuid()}"
    if not is_given and plain.exists() and home() != plain:
        yield warning(
            "run directory",
            f"{plain} is not yours alone (owner {plain.stat().st_uid}); Monarch uses "
            "another name",
            "tell your administrator",
        )


def check_memory(levels: Sequence[Memory] | None = None) -> Iterator[Finding]:
    """Report the memory that this process may use."""
    found = list(levels or read_memory())
    here, whole = tightest(found), found[0]
    cause = "machine"
    if here.limit_bytes < whole.limit_bytes:
        cause = f"cgroup, of {format_size(whole.limit_bytes)} in the machine"
    text = f"limit {format_size(here.limit_bytes)} ({cause}), "
    yield ok("memory", f"{text}{format_size(here.free_bytes)} free")


# -- tiers and datasets -------------------------------------------------------------


def check_tiers(config: Config) -> Iterator[Finding]:
    """Check each dataset and each configured Tier, and their places."""
    usable = {}
    for number, dataset in enumerate(config.datasets):
        key = f"datasets[{number}].path"
        try:
            [named] = name_roots([dataset], ())
            check_places({key: Path(named.path)}, [])
        except UsageError as error:
            yield _refused(error)
            continue
        usable[key] = Path(named.path)
        yield _dataset(key, Path(named.path))
    if len(usable) == len(config.datasets):
        yield from _links(config)
    tiers = [
        open_tier(TierSettings.of(number, tier), "doctor")
        for number, tier in enumerate(config.used_tiers)
    ]
    possible = []
    for tier in tiers:
        try:
            tier.resolve()
        except MonarchError as error:
            yield _refused(error)
            continue
        possible.append(tier)
        yield from _tier(tier, usable)
    try:
        check_places(usable, possible)
    except UsageError as error:
        yield _refused(error)


def _refused(error: MonarchError) -> Finding:
    """Return the finding of an error `KEY: REASON; FIX`."""
    check, _, rest = str(error).partition(": ")
    text, _, fix = rest.partition("; ")
    return prevents(check, text, fix or "change the configuration")


def _dataset(key: str, path: Path) -> Finding:
    kind = file_system(path)
    if kind.kind in IN_MEMORY:
        text = f"{path}: {kind.kind}: it is in memory already"
        return note(key, text, "run the program without Monarch")
    return ok(key, f"{path}: {kind.kind}")


def _links(config: Config) -> Iterator[Finding]:
    """Report the links of each dataset, if they are known."""
    saved = SavedIndexes(index_directory(os.environ))
    for named in name_roots(config.datasets, ()):
        if text := known_links(named.path, named.patterns, saved):
            yield ok(f"datasets[{named.keys[0]}].links", text)


def _codec(settings: TierSettings) -> Iterator[Finding]:
    """Check the libraries that a packed Tier needs; auto works with one of them."""
    if settings.codec == PLAIN:
        return
    wanted = ("zstd:1", "lz4") if settings.codec == AUTO else (settings.codec,)
    missing = [name for name in wanted if codec_library(Codec.parse(name)) is None]
    for name in missing:
        library = "libzstd" if name.startswith("zstd") else "liblz4"
        text = f"{library} is missing: files are packed, but not by {name}"
        yield warning(settings.key, text, f"install {library} (libzstd1, liblz4-1)")


def _tier(tier: Tier, datasets: Mapping[str, Path]) -> Iterator[Finding]:
    settings, device = tier.settings, measure(tier.settings.path)
    kind = file_system(settings.path)
    place = f"{settings.path} ({kind.kind}, {_size(device.free_bytes)} free)"
    text = f"{settings.name}: {format_size(tier.capacity_bytes)} at {place}"
    if tier.capacity_bytes:
        yield ok(settings.key, text)
    else:
        fix = f"free space at {settings.path}, or another path"
        yield warning(settings.key, f"{text}: no free space", fix)
    yield from _codec(settings)
    yield from _kind(settings, kind)
    yield from _device(settings, device, datasets)
    yield from _writes(settings, kind)


def _kind(settings: TierSettings, found: FileSystem) -> Iterator[Finding]:
    """Compare the kind of a Tier with the type of its file system."""
    in_memory = found.kind in IN_MEMORY
    if found.is_shared:
        text = f"{settings.path} is {found.kind}: it may be as slow as the origin"
        yield warning(settings.key, text, "path: a directory on a disk of the node")
    elif settings.kind == "ram" and not in_memory and found.kind != UNKNOWN:
        text = f"kind is ram, but {settings.path} is {found.kind}"
        yield warning(settings.key, text, "kind: ssd, or path: /dev/shm")
    elif settings.kind == "ssd" and in_memory:
        text = f"kind is ssd, but {settings.path} is {found.kind}: it takes memory"
        yield warning(settings.key, text, "kind: ram, or a path on a disk")


def _device(
    settings: TierSettings, device: Device, datasets: Mapping[str, Path]
) -> Iterator[Finding]:
    for key, path in datasets.items():
        if path.stat().st_dev == device.dev:
            yield warning(
                settings.key,
                f"{settings.path} is on the device of {key}: copies are not faster",
                "path: a directory on another device than the dataset",
            )
    free = os.statvfs(settings.path)
    if free.f_files and free.f_favail < INODES_MIN:
        yield warning(
            settings.key,
            f"{settings.path} has room for {format_count(free.f_favail)} more files",
            "remove files there, or pack the dataset into larger files",
        )


def _writes(settings: TierSettings, kind: FileSystem) -> Iterator[Finding]:
    """Write into a Tier as an agent would, in a directory that is removed at once."""
    prefix = "monarch-doctor-"
    try:
        with tempfile.TemporaryDirectory(prefix=prefix, dir=settings.path) as folder:
            probe = Probe(Path(folder))
            try:
                probe.run()
            finally:
                probe.close()
            missing = [
                name for name in ("O_TMPFILE", "O_DIRECT") if not _opens(folder, name)
            ]
    except OSError as error:
        text = f"{settings.path} cannot be written to: {error.strerror}"
        yield prevents(settings.key, text, "another path")
        return
    if missing:
        names = " and ".join(missing)
        yield note(
            settings.key, f"{settings.path} has no {names}; Monarch works without them"
        )
    if "noexec" in kind.options:
        yield note(
            settings.key,
            f"{settings.path} is mounted noexec: programs cannot map copies for "
            "execution",
            "keep libraries and programs out of datasets",
        )


def _opens(folder: str, name: str) -> bool:
    """Return whether a file without a name can be opened with a flag."""
    flags = {"O_TMPFILE": os.O_TMPFILE, "O_DIRECT": os.O_DIRECT | os.O_CREAT}
    path = folder if name == "O_TMPFILE" else f"{folder}/direct"
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | flags[name], 0o600))
    except OSError:
        return False
    return True


def _size(size: int | None) -> str:
    return "unknown space" if size is None else format_size(size)
