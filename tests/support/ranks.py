"""Nodes that are ranks of one MPI launch, each with directories of its own."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from support.mpiexec import Mpi
from support.sites import LAUNCH_TIMEOUT_S, Site

NODE = """\
#!/bin/sh
# Makes this rank a node of its own, or one of the $PER_NODE ranks of one.
rank=${PMI_RANK:-$OMPI_COMM_WORLD_RANK}
node=$((rank / PER_NODE))
export MONARCH_STAGING_NODE=n$node TIER=$SITE/tier$node
export MONARCH_STAGING_RUN_DIR=$SITE/run$node
exec "$@"
"""


@dataclass
class RankSite(Site):
    """Nodes below one directory, which MPI launches.

    Args:
        per_node: how many ranks each node gets.
    """

    mpi: Mpi
    per_node: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        script = self.folder / "node.sh"
        script.write_text(NODE)
        script.chmod(0o755)

    def start(self, words: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a command on every node; its output is kept."""
        launch = self.mpi.here(self.nodes * self.per_node)
        return subprocess.Popen(
            [*launch, str(self.folder / "node.sh"), *words],
            env={
                **os.environ,
                **self.mpi.environ,
                "SITE": str(self.folder),
                "PER_NODE": str(self.per_node),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command on every node to its end."""
        process = self.start(words)
        try:
            told, errors = process.communicate(timeout=LAUNCH_TIMEOUT_S)
        finally:
            process.kill()
        return subprocess.CompletedProcess(words, process.returncode, told, errors)
