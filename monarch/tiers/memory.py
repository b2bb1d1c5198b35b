"""Memory limits of this process, by its cgroups (v1 and v2) and the machine."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# cgroup v1 reports "no limit" as a number near 2**63.
UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class Memory:
    """One limit and the memory charged to it, without memory the kernel can reclaim."""

    limit_bytes: int
    used_bytes: int

    @property
    def free_bytes(self) -> int:
        """The memory that may still be used."""
        return max(0, self.limit_bytes - self.used_bytes)


def read_memory(root: Path = Path("/")) -> list[Memory]:
    """Return all limits that apply to this process, the machine's first.

    Args:
        root: the directory that contains /proc and /sys.
    """
    levels = [_machine(root)]
    for directory, version in _cgroups(root):
        level = _level_v2(directory) if version == 2 else _level_v1(directory)
        if level is not None and level.limit_bytes < levels[0].limit_bytes:
            levels.append(level)
    return levels


def tightest(levels: list[Memory]) -> Memory:
    """Return the smallest limit together with the least free memory of all levels."""
    limit = min(level.limit_bytes for level in levels)
    free = min(level.free_bytes for level in levels)
    return Memory(limit, limit - min(limit, free))


def _machine(root: Path) -> Memory:
    lines = (root / "proc/meminfo").read_text().splitlines()
    figures = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    total = figures["MemTotal"]
    return Memory(total, total - figures.get("MemAvailable", figures["MemFree"]))


def _cgroups(root: Path) -> Iterator[tuple[Path, int]]:
    """Yield the memory cgroup of this process and each of its ancestors."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        version = 1 if "memory" in controllers.split(",") else 2
        if version == 2 and controllers:
            continue
        for mount in _mounts(root, version):
            yield from ((place, version) for place in _upwards(mount, path))


def _mounts(root: Path, version: int) -> list[Path]:
    base = root / "sys/fs/cgroup"
    if version == 1:
        return [base / "memory"]
    return [base / "unified"] if (base / "unified").is_dir() else [base]


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """Yield a cgroup's directory and its parents; in a container, perhaps the mount."""
    parts = [part for part in path.split("/") if part and part != ".."]
    for depth in range(len(parts), -1, -1):
        place = mount.joinpath(*parts[:depth])
        if place.is_dir():
            yield place


def _level_v2(directory: Path) -> Memory | None:
    limit = _number(directory / "memory.max")
    used = _number(directory / "memory.current")
    if limit is None or used is None:
        return None
    return Memory(limit, max(0, used - _file_pages(directory, "")))


def _level_v1(directory: Path) -> Memory | None:
    limit = _number(directory / "memory.limit_in_bytes")
    used = _number(directory / "memory.usage_in_bytes")
    if limit is None or used is None or limit >= UNLIMITED_BYTES:
        return None
    return Memory(limit, max(0, used - _file_pages(directory, "total_")))


def _file_pages(directory: Path, prefix: str) -> int:
    """Return the page cache that the kernel can drop, which excludes tmpfs pages."""
    wanted = {f"{prefix}inactive_file", f"{prefix}active_file"}
    try:
        lines = (directory / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    words = [line.split() for line in lines]
    return sum(int(word[1]) for word in words if word[0] in wanted)


def _number(path: Path) -> int | None:
    """Return the number in a file; None if it holds none, for example `max`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
