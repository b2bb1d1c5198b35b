"""Stand-ins for the launchers and container programs of a site, run on this node."""

import os
import sys
from pathlib import Path

# Each runs its command on this node, as rank one of one.
_SRUN = 'while [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n'
_MPIEXEC = (
    'if [ "$1" = --version ]; then echo "$MPI_VERSION"; exit; fi\n'
    'echo "mpiexec $*"\n'
    'while [ "$1" != monarch ]; do shift; done\nexec "$@"\n'
)
_TORCHRUN = 'while [ "${1#-}" != "$1" ]; do shift; done\nexec python "$@"\n'
_APPTAINER = (
    'echo "apptainer $*; $APPTAINER_BIND"\nshift\n'
    'while [ "${1#-}" != "$1" ]; do shift; done\nshift\nexec "$@"\n'
)
_TEXTS = {
    "srun": _SRUN,
    "mpiexec": _MPIEXEC,
    "torchrun": _TORCHRUN,
    "apptainer": _APPTAINER,
    **{name: f'echo "{name} $*"\n' for name in ("scontrol", "docker", "bwrap")},
}


def path_with_stand_ins(folder: Path, monarch: Path) -> str:
    """A PATH that begins with the stand-ins, written below a folder, and `monarch`."""
    commands = folder / "commands"
    commands.mkdir()
    for name, text in _TEXTS.items():
        (commands / name).write_text(f"#!/bin/sh\n{text}")
        (commands / name).chmod(0o755)
    (commands / "monarch").symlink_to(monarch)
    # The last one has a `python`, which Debian lacks outside of environments.
    return f"{commands}:{os.environ['PATH']}:{Path(sys.executable).parent}"
