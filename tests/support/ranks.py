"""Nodes that are ranks of one MPI launch, each with directories of its own."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from support.commands import Command, Ended
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

    def start(self, words: Sequence[str]) -> Command:
        """Start a command on every node."""
        launch = self.mpi.here(self.nodes * self.per_node)
        environ = {
            **os.environ,
            **self.mpi.environ,
            "SITE": str(self.folder),
            "PER_NODE": str(self.per_node),
        }
        place = self.folder / f"ranks{len(list(self.folder.glob('ranks*.out')))}"
        script = str(self.folder / "node.sh")
        return Command.start([*launch, script, *words], place, environ)

    def run(self, words: Sequence[str]) -> Ended:
        """Run a command on every node to its end."""
        return self.start(words).end(LAUNCH_TIMEOUT_S)
