"""What prevents or slows Monarch on a node, found before a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from monarch.doctor.findings import Finding
from monarch.doctor.kernel import check_kernel, check_limits, check_variables
from monarch.doctor.network import check_network
from monarch.doctor.shim import check_here, check_root
from monarch.doctor.storage import check_memory, check_run_directory, check_tiers

if TYPE_CHECKING:
    from monarch.config import Config

__all__ = ["examine"]


def examine(
    config: Config, environ: Mapping[str, str], root: Path | None
) -> Iterator[Finding]:
    """Yield all that is found on this node.

    Args:
        root: the root directory of a container in which programs will run.
    """
    yield from check_here()
    if root is not None:
        yield from check_root(root)
    yield from check_kernel()
    yield from check_limits()
    yield from check_variables(environ)
    yield from check_run_directory(environ)
    yield from check_memory()
    yield from check_tiers(config)
    yield from check_network(config, environ)
