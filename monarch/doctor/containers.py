"""The directories and variables that a container needs so that programs are served."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from monarch.cluster import RUN_VARIABLE
from monarch.doctor.shim import SHIM
from monarch.doctor.storage import HOME_BASE

if TYPE_CHECKING:
    from monarch.config import Config

ANY_RUN: Final = f"${RUN_VARIABLE}"
"""The run directory of a job that is not known yet: its shell expands it."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of a container.

    Attributes:
        run: the run directory of the job.
        paths: directories to be bound, each at its own path.
    """

    run: str
    paths: tuple[str, ...]

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the programs in the container."""
        return {"LD_PRELOAD": f"{self.run}/shim.so", RUN_VARIABLE: self.run}


def needs_of(config: Config, run: str) -> Needs:
    """Return the needs of a container, for a configuration and a run directory."""
    base = HOME_BASE
    if not run.startswith(("$", f"{HOME_BASE}/")):
        base = Path(run).parent
    tiers = [tier.path for tier in config.tiers]
    datasets = [
        path for one in config.datasets for path in (str(one.path), *one.aliases)
    ]
    wanted = [str(base), *map(str, tiers), *map(str, datasets)]
    if base.exists() and os.statvfs(base).f_flag & os.ST_NOEXEC:
        wanted.append(str(SHIM.parent))  # then shim.so is a link to it
    return Needs(run, tuple(_outermost(wanted)))


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that no other one contains, in their order."""
    found = list(dict.fromkeys(paths))
    return [
        path
        for path in found
        if not any(path != other and path.startswith(f"{other}/") for other in found)
    ]


# -- as options of each container program -------------------------------------------


def apptainer(needs: Needs) -> list[str]:
    """Return shell commands; Singularity reads the same under its own names.

    They set variables, because a tool installed setuid loses LD_PRELOAD at its start.
    """
    lines = []
    for tool in ("APPTAINER", "SINGULARITY"):
        bind = ",".join(needs.paths)
        lines.append(
            f'export {tool}_BIND={shlex.quote(bind)}"${{{tool}_BIND:+,${tool}_BIND}}"'
        )
        for name, value in needs.variables.items():
            lines.append(f"export {tool}ENV_{name}={_quoted(value)}")
    return lines


def docker(needs: Needs) -> list[str]:
    """Return options of `docker run` and `podman run`, with the rights of this user."""
    options = ["--ipc=host", "--pid=host", f"--user={os.geteuid()}:{os.getegid()}"]
    options += [f"--group-add={group}" for group in _other_groups()]
    if os.geteuid() == 0:
        options.append("--cap-add=DAC_READ_SEARCH")
    for path in needs.paths:
        if path != str(HOME_BASE):  # --ipc=host includes it
            options.append(shlex.quote(f"--volume={path}:{path}"))
    for name, value in needs.variables.items():
        options.append(_quoted(f"--env={name}={value}"))
    return options


def bwrap(needs: Needs) -> list[str]:
    """Return options of `bwrap`, to follow those that make the root."""
    options = ["--proc /proc"]
    quoted = map(shlex.quote, needs.paths)
    options += [f"--bind {path} {path}" for path in quoted]
    variables = needs.variables.items()
    return [*options, *(f"--setenv {name} {_quoted(one)}" for name, one in variables)]


def _quoted(value: str) -> str:
    """Quote a value for a shell, which expands the variable of an unknown job."""
    return f'"{value}"' if ANY_RUN in value else shlex.quote(value)


def _other_groups() -> Sequence[int]:
    return sorted({*os.getgroups()} - {os.getegid()})
