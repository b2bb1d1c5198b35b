"""Which launch by MPICH's mpiexec this is, as the native launcher finds it too."""

from pathlib import Path
from typing import Final

# Shells and wrappers that may stand between a rank and its proxy.
GENERATIONS_MAX: Final = 16
_PROC: Final = Path("/proc")


def launch_name(pid: int) -> str | None:
    """Return the name of the launch whose proxy `pid` or an ancestor of it is.

    All proxies are told where mpiexec listens: `--control-port HOST:PORT`.
    """
    for _ in range(GENERATIONS_MAX):
        if pid <= 1:
            break
        try:
            words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
            stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            break
        if b"--control-port" in words[:-1]:
            place = words[words.index(b"--control-port") + 1].decode(errors="replace")
            host, colon, port = place.rpartition(":")
            if colon:
                return f"{port}-{host}"
        pid = int(stat.rpartition(")")[2].split()[1])
    return None
