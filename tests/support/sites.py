"""Nodes on this machine that stage together, each with directories of its own."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.commands import Command, Ended

LAUNCH_TIMEOUT_S = 120

CONFIG = """\
retain: node
peers: {interface: 127.0.0.1}
"""


@dataclass
class Site:
    """Nodes below one directory."""

    folder: Path
    nodes: int

    def __post_init__(self) -> None:
        for node in range(self.nodes):
            (self.folder / f"run{node}").mkdir(mode=0o700)
            self.tier(node).mkdir()

    def tier(self, node: int) -> Path:
        """Return the directory of a node's Tier."""
        return self.folder / f"tier{node}"

    def retained(self, node: int) -> list[Path]:
        """Return the Replicas that a node has retained."""
        found = self.tier(node).glob("monarch-*/retained-*/*")
        return sorted(path for path in found if path.suffix != ".npz")

    def leftovers(self) -> list[Path]:
        """Return the other leftovers of staging."""
        found = self.folder.glob("tier*/monarch-*/*")
        strangers = [path for path in found if not path.name.startswith("retained-")]
        return strangers + list(self.folder.glob("run*/*"))

    def surroundings(self, node: int) -> dict[str, str]:
        """Return the environment of a command on a node."""
        return {
            **os.environ,
            "MONARCH_STAGING_NODE": f"n{node}",
            "MONARCH_STAGING_RUN_DIR": str(self.folder / f"run{node}"),
            "TIER": str(self.tier(node)),
        }


@dataclass
class HostSite(Site):
    """Nodes that are named by a host list, each with the same command.

    Args:
        capacities: the size of the Tier of each node.
    """

    command: Path
    capacities: Sequence[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        (self.folder / "rendezvous").mkdir(mode=0o700)
        (self.folder / "job.yaml").write_text(CONFIG)
        for node, capacity in enumerate(self.capacities):
            tier = f"{{name: ssd, kind: ssd, path: '${{TIER}}', capacity: {capacity}}}"
            (self.folder / f"site{node}.yaml").write_text(f"tiers: [{tier}]\n")

    def surroundings(self, node: int) -> dict[str, str]:
        """Return the environment of a command on a node."""
        site = str(self.folder / f"site{node}.yaml")
        return {**super().surroundings(node), "MONARCH_STAGING_SITE_CONFIG": site}

    def start(self, data: Path, *options: str) -> list[Command]:
        """Start to stage a dataset on all nodes."""
        hosts = ",".join(f"n{node}" for node in range(self.nodes))
        words = [str(self.command), "stage", "--hosts", hosts, *options]
        words += ["-c", str(self.folder / "job.yaml"), "--data", str(data)]
        words += ["--set", f"peers.rendezvous={self.folder / 'rendezvous'}"]
        started = len(list(self.folder.glob("stage*.out")))
        return [
            Command.start(
                words, self.folder / f"stage{started + node}", self.surroundings(node)
            )
            for node in range(len(self.capacities))
        ]

    def stage(self, data: Path, *options: str) -> list[Ended]:
        """Stage a dataset on all nodes at once; return the result of each."""
        running = self.start(data, *options)
        try:
            return [one.end(LAUNCH_TIMEOUT_S) for one in running]
        finally:
            for one in running:
                one.kill()
