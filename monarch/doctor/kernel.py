"""Checks the kernel, its limits and the environment of this node."""

import ctypes
import errno
import mmap
import os
import platform
import resource
from collections.abc import Iterator, Mapping
from typing import Final

from monarch.doctor.findings import Finding, note, ok, prevents, warning
from monarch.units import format_count, format_size

DESCRIPTORS_MIN: Final = 4096
THREADS_MIN: Final = 256
# More than the segments of a small job.
FILE_BYTES_MIN: Final = 64 << 20

# futex(2) and statx(2), which old C libraries do not wrap.
_NUMBERS: Final = {"x86_64": (202, 332), "aarch64": (98, 291)}
_AT_FDCWD: Final = -100
_STATX_BYTES: Final = 256
_BASIC_STATS: Final = 0x7FF
_PROFILE: Final = "allow it in the seccomp profile of the container or sandbox"


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def check_kernel() -> Iterator[Finding]:
    """Try each system call that Monarch cannot replace by another one."""
    machine = platform.machine()
    yield ok("kernel", f"Linux {platform.release()}, {machine}")
    if machine in _NUMBERS:
        futex, statx = _NUMBERS[machine]
        yield from _futex(futex)
        yield from _statx(statx)
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        text = (
            f"pidfd_open(2): {error.strerror}: the agent polls for the end of programs"
        )
        yield note("kernel", text)
    if not os.path.exists("/proc/self/exe"):
        yield prevents("kernel", "/proc is not mounted", "mount -t proc proc /proc")


def _futex(number: int) -> Iterator[Finding]:
    word = (ctypes.c_uint32 * 1).from_buffer(mmap.mmap(-1, mmap.PAGESIZE))
    failed = _call(number, word, 0, 0, ctypes.byref(_Timespec(0, 1_000_000)), 0, 0)
    if failed == errno.ETIMEDOUT:
        yield ok("kernel", "futex(2) works: programs can wait for copies")
        return
    reason = os.strerror(failed)
    yield prevents("kernel", f"futex(2): {reason}: no program can wait", _PROFILE)


def _statx(number: int) -> Iterator[Finding]:
    out = ctypes.create_string_buffer(_STATX_BYTES)
    failed = _call(number, _AT_FDCWD, b"/", 0, _BASIC_STATS, out)
    if not failed:
        yield ok("kernel", "statx(2) works")
        return
    yield warning(
        "kernel",
        f"statx(2): {os.strerror(failed)}: the origin lists directories, and large "
        "files are read there until they are staged",
        f"use Linux 4.11 or newer, or {_PROFILE}",
    )


def _call(*words: object) -> int:
    """Make a system call; return its error, 0 if it succeeds."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    if int(libc.syscall(*words)) >= 0:
        return 0
    return ctypes.get_errno()


# -- limits -------------------------------------------------------------------------


def check_limits() -> Iterator[Finding]:
    """Compare the limits of processes with the needs of an agent and its programs."""
    most = _limit(resource.RLIMIT_NOFILE, hard=True)
    if most is None or most >= DESCRIPTORS_MIN:
        many = "no limit" if most is None else format_count(most)
        yield ok("limits", f"open files: {many}")
    else:
        yield warning(
            "limits",
            f"open files: {format_count(most)} at most; each process of the job and "
            "each copy takes one in the agent",
            f"raise the hard limit (ulimit -Hn {1 << 16}) where jobs are started",
        )
    size = _limit(resource.RLIMIT_FSIZE)
    if size is not None:
        text = f"files: at most {format_size(size)}; larger ones cannot be staged"
        kind = prevents if size < FILE_BYTES_MIN else warning
        yield kind("limits", text, "ulimit -f unlimited")
    if (space := _limit(resource.RLIMIT_AS)) is not None:
        yield warning(
            "limits",
            f"address space: {format_size(space)}; a process reads the origin if "
            "Monarch's segments take more than an eighth of it",
            "ulimit -v unlimited",
        )
    threads = _limit(resource.RLIMIT_NPROC)
    if threads is not None and threads < THREADS_MIN:
        text = f"processes: {format_count(threads)}; an agent has up to 100 threads"
        yield warning("limits", text, f"ulimit -u {1 << 12}")


def _limit(which: int, *, hard: bool = False) -> int | None:
    """Return a limit, None if unlimited."""
    found = resource.getrlimit(which)[hard]
    return None if found == resource.RLIM_INFINITY else found


def check_variables(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check for variables that disable Monarch."""
    if environ.get("MONARCH_STAGING_DISABLE", "0") not in ("", "0"):
        yield warning(
            "environment",
            "MONARCH_STAGING_DISABLE is set: programs run without staging",
            "unset MONARCH_STAGING_DISABLE",
        )
