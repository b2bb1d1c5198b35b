"""Real MPIs of PyPI, each in a virtual environment of its own, over nodes that one
machine pretends to be."""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support import processes

INSTALL_LIMIT_S = 300
# Addresses of this machine, which the launchers treat as hosts.
HOSTS = tuple(f"127.0.0.{number}" for number in range(11, 15))

# Replaces ssh: it runs the command here, under the host's name.
REMOTE_SHELL = """\
#!/bin/sh
[ "$1" = -x ] && shift
export MONARCH_STAGING_NODE="$1"
shift
exec /bin/sh -c "$*"
"""


@dataclass(frozen=True, slots=True)
class Mpi:
    """An installed MPI, with its mpi4py."""

    name: str
    home: Path

    @property
    def python(self) -> str:
        """The Python that has its mpi4py."""
        return str(self.home / "bin" / "python")

    @property
    def environ(self) -> dict[str, str]:
        """What makes a verb of `monarch` use this MPI's Python."""
        return {"MONARCH_STAGING_PYTHON": self.python}

    @property
    def is_open_mpi(self) -> bool:
        """Whether it takes Open MPI's options."""
        return self.name == "openmpi"

    def launch(self, *options: str) -> list[str]:
        """mpiexec with options, also as root."""
        line = [str(self.home / "bin" / "mpiexec")]
        if self.is_open_mpi:
            line.append("--allow-run-as-root")
            # Its shared memory treats all "hosts" as one, as they are.
            line += ["--mca", "btl", "tcp,self", "--mca", "pml", "ob1"]
        return [*line, *options]

    def on_hosts(self, folder: Path, per_host: int = 1) -> list[str]:
        """mpiexec with so many ranks on each of the four hosts."""
        shell = folder / "remote-shell"
        shell.write_text(REMOTE_SHELL)
        shell.chmod(0o755)
        ranks = ("-n", str(per_host * len(HOSTS)))
        if self.is_open_mpi:
            places = ",".join(f"{host}:{per_host}" for host in HOSTS)
            agent = ("--prtemca", "plm_ssh_agent", str(shell))
            return self.launch(*agent, "--host", places, *ranks)
        launcher = ("-launcher", "ssh", "-launcher-exec", str(shell))
        hosts = ("-hosts", ",".join(HOSTS), "-ppn", str(per_host))
        return self.launch(*launcher, *hosts, *ranks)

    def here(self, ranks: int) -> list[str]:
        """mpiexec with so many ranks on this machine."""
        more = ["--oversubscribe"] if self.is_open_mpi else []
        return self.launch(*more, "-n", str(ranks))


def install(name: str, parent: Path) -> Mpi:
    """Install an MPI below a directory, unless it is there from an earlier time.

    Raises:
        OSError: it cannot be installed; the message states the reason.
    """
    mpi = Mpi(name, parent / name)
    done = mpi.home / "installed"
    if done.exists():
        _lend(mpi)  # the tests may run in another environment now
        return mpi
    venv.create(mpi.home, clear=True, with_pip=True)
    _pip(mpi, ["mpi4py>=4", name])
    _lend(mpi)
    done.touch()
    return mpi


def _lend(mpi: Mpi) -> None:
    """Let the MPI's Python import what is installed for this one, Monarch above all."""
    for place in mpi.home.glob("lib/python3*/site-packages"):
        (place / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")


def _pip(mpi: Mpi, packages: Sequence[str]) -> None:
    command = [mpi.python, "-m", "pip", "install", "--quiet", *packages]
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=INSTALL_LIMIT_S
        )
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines()
        raise OSError(f"pip: {said[-1] if said else error}") from error
    except subprocess.TimeoutExpired as error:
        raise OSError(f"pip was still busy after {INSTALL_LIMIT_S} s") from error


def segments() -> set[Path]:
    """The shared memory of MPICH's ranks; those of killed ranks stay for ever."""
    return set(Path("/dev/shm").glob("mpich_shm_*"))


def remove_segments(before: set[Path]) -> None:
    """Remove those that came since, unless a process of somebody else's has one."""
    mapped = processes.mapped()
    for segment in segments() - before:
        if str(segment) not in mapped:
            segment.unlink(missing_ok=True)


def home(fallback: Path) -> Path:
    """Where MPIs are installed: kept between runs if scripts/test says where."""
    # Another Python needs another mpi4py.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return Path(os.environ.get("MONARCH_LAUNCHERS", fallback)) / version
