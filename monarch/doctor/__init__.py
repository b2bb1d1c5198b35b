"""Finds problems that prevent or slow Monarch on a node, before a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from monarch.doctor.findings import Finding, warning
from monarch.doctor.kernel import check_kernel, check_limits, check_variables
from monarch.doctor.network import check_network
from monarch.doctor.shim import check_here, check_root
from monarch.doctor.storage import check_memory, check_run_directory, check_tiers
from monarch.errors import MonarchError

if TYPE_CHECKING:
    from monarch.config import Config

__all__ = ["examine"]


def examine(
    config: Config, environ: Mapping[str, str], root: Path | None
) -> Iterator[Finding]:
    """Yield all findings on this node.

    Args:
        root: the root directory of a container in which programs will run.
    """
    yield from _finished("shim", check_here())
    if root is not None:
        yield from _finished(f"container {root}", check_root(root))
    yield from _finished("kernel", check_kernel())
    yield from _finished("limits", check_limits())
    yield from check_variables(environ)
    yield from _finished("run directory", check_run_directory(environ))
    yield from _finished("memory", check_memory())
    yield from _finished("tiers", check_tiers(config))
    yield from _finished("network", check_network(config, environ))


def _finished(check: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield the findings of a check, and its own failure, which ends no other check."""
    try:
        yield from findings
    except (OSError, MonarchError) as error:
        yield warning(check, f"cannot be checked: {error}", "check it by hand")
