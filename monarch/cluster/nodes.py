"""The nodes of a job: named by its launch or its host list, or counted by MPI ranks."""

import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from monarch.errors import MonarchError, UsageError
from monarch.hostlist import expand_hosts, read_hosts
from monarch.native import launched_by_open_mpi

Read = Callable[[Path], str]

HOST_LIST: Final = "the host list"

# Older entries of the rank registry are those of killed jobs of the same name; live
# nodes touch theirs at each poll.
STALE_S: Final = 300.0

# Set for each process of an MPI launch, and for no batch script.
_RANK: Final = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PALS_RANKID")
_ENTRY: Final = re.compile(r"([A-Za-z0-9._-]{1,64})@([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class NodeList:
    """All nodes of a job, fixed when it starts, and the number of this one.

    Attributes:
        nodes: their names, in the same order on each of them.
        ports: the ports that a host list names.
        source: the source of the list, as text.
    """

    nodes: tuple[str, ...]
    number: int
    source: str
    ports: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class SingleNode:
    """The outcome if no other node of the job can be found.

    Attributes:
        reason: in words that follow "this node works alone:".
        expected: whether other nodes were launched that cannot be found.
    """

    reason: str
    expected: bool = False


@dataclass(frozen=True, slots=True)
class UnnamedNodes(SingleNode):
    """MPI has launched processes on several nodes but does not name the nodes.

    Attributes:
        size: the number of processes.
        local: the number of processes on this node.
    """

    size: int = 0
    local: int = 0


def find_nodes(
    environ: Mapping[str, str], read: Read, hosts: Sequence[str], names: Sequence[str]
) -> NodeList | SingleNode:
    """Return the nodes of the job.

    Args:
        read: returns the text of a file that the environment names.
        hosts: the value of --hosts or `hosts:`; each is `NAME[:PORT]` or a Slurm list.
        names: that a list may use for this node, the most reliable first.

    Raises:
        UsageError: the given hosts are not valid.
    """
    if hosts:
        return _from_hosts(hosts, names)
    # The daemons of Open MPI may be a step, which lacks the node of mpiexec itself.
    if environ.get("SLURM_STEP_ID") and not launched_by_open_mpi(environ):
        return _from_step(environ, names)
    if environ.get("SLURM_JOB_ID") and not launched_by_mpi(environ):
        return SingleNode("a batch script or shell of Slurm is one task on one node")
    return _from_mpi(environ, read, names)


def _from_hosts(hosts: Sequence[str], names: Sequence[str]) -> NodeList | SingleNode:
    found = read_hosts(hosts)
    return _placed(found.nodes, names, HOST_LIST, found.ports)


def _from_step(
    environ: Mapping[str, str], names: Sequence[str]
) -> NodeList | SingleNode:
    listed = environ.get("SLURM_STEP_NODELIST", "")
    try:
        nodes = expand_hosts(listed)
    except UsageError as error:
        return SingleNode(f"SLURM_STEP_NODELIST is not valid ({error})", expected=True)
    count = environ.get("SLURM_STEP_NUM_NODES")
    if not nodes or (count is not None and count != str(len(nodes))):
        reason = f"SLURM_STEP_NODELIST={listed} does not name {count or 'any'} nodes"
        return SingleNode(reason, expected=True)
    own = environ.get("SLURMD_NODENAME")
    return _placed(nodes, [own] if own else names, "the Slurm step", {})


def launched_by_mpi(environ: Mapping[str, str]) -> bool:
    """Return whether MPI has launched this process."""
    return any(environ.get(name) for name in _RANK)


def _from_mpi(
    environ: Mapping[str, str], read: Read, names: Sequence[str]
) -> NodeList | SingleNode:
    """MPI reports the number of processes; the batch system lists the nodes."""
    if not launched_by_mpi(environ):
        return SingleNode("neither a launcher nor --hosts names other nodes")
    size, local = _ranks(environ)
    if size and size == local:
        return SingleNode("MPI has launched processes on this node only")
    found = _from_node_file(environ, read, names)
    if not size:
        return found
    if isinstance(found, SingleNode):
        return UnnamedNodes(found.reason, expected=True, size=size, local=local)
    if size - local < len(found.nodes) - 1:
        reason = f"{found.source} names more nodes than MPI has launched processes on"
        return UnnamedNodes(reason, expected=True, size=size, local=local)
    return found


def _from_node_file(
    environ: Mapping[str, str], read: Read, names: Sequence[str]
) -> NodeList | SingleNode:
    for variable in ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "LSB_HOSTS"):
        if not (value := environ.get(variable, "").strip()):
            continue
        try:
            text = value if variable == "LSB_HOSTS" else read(Path(value))
        except OSError as error:
            return SingleNode(f"{variable}: {error.strerror or error}", expected=True)
        return _placed(text.split(), names, variable, {})
    return SingleNode(
        "MPI does not name the nodes of its processes; use --hosts", expected=True
    )


def _ranks(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of ranks, and of those on this node; 0, 0 if unknown."""
    pairs = (
        ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("PMI_SIZE", "MPI_LOCALNRANKS"),
        ("PMI_SIZE", "PALS_LOCAL_SIZE"),
    )
    for names in pairs:
        whole, local = (environ.get(name, "") for name in names)
        if whole.isdecimal() and local.isdecimal() and int(whole) >= int(local) > 0:
            return int(whole), int(local)
    return 0, 0


def _placed(
    nodes: Sequence[str],
    names: Sequence[str],
    source: str,
    ports: Mapping[int, int],
) -> NodeList | SingleNode:
    """Find this node in the list, by its full name first, then by its short name."""
    unique = tuple(dict.fromkeys(nodes))
    number = _index(unique, names)
    if number is None:
        shown = ", ".join(names) or "no name"
        return SingleNode(
            f"{source} does not name this node ({shown}); set MONARCH_STAGING_NODE",
            expected=True,
        )
    if len(unique) == 1:
        return SingleNode(f"{source} names this node only")
    return NodeList(unique, number, source, ports)


def _index(nodes: Sequence[str], names: Sequence[str]) -> int | None:
    for form in (str, _short):
        listed = [form(node) for node in nodes]
        for name in map(form, names):
            if listed.count(name) == 1:
                return listed.index(name)
    return None


def _short(name: str) -> str:
    return name if name.replace(".", "").isdigit() else name.partition(".")[0]


# -- counting ranks -----------------------------------------------------------------


class RankRegistry:
    """Finds the nodes of an MPI launch that does not name them.

    Each node enters the number of its ranks into a directory that all nodes share.
    When the entries add up to all ranks, they name all nodes. Every method may block
    on the shared file system.

    Args:
        directory: the rendezvous directory.
        node: the name of this node.
    """

    def __init__(
        self, directory: Path, job: str, node: str, launch: UnnamedNodes
    ) -> None:
        self._directory = directory / f"{job}.nodes"
        self._own_entry = self._directory / f"{node}@{launch.local}"
        self._node = node
        self._size = launch.size
        self._ranks: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<RankRegistry {self._directory}: {self.counted}/{self._size} ranks>"

    @property
    def counted(self) -> int:
        """Return the number of ranks on the nodes that were found."""
        return sum(self._ranks.values())

    @property
    def reason(self) -> str:
        """Return the reason in words that follow "this node works alone:"."""
        return (
            f"{self._directory} accounts for {self.counted} of {self._size} ranks; "
            "name a directory that all nodes share (peers.rendezvous), or the nodes "
            "(--hosts)"
        )

    def poll(self) -> NodeList | None:
        """Enter or refresh this node; return all nodes if they have all ranks.

        Raises:
            MonarchError: the directory cannot be used.
        """
        try:
            now = self._enter()
            for name in os.listdir(self._directory):
                self._count(name, now)
        except OSError as error:
            raise MonarchError(f"{self._directory}: {error.strerror}") from error
        if self.counted != self._size:
            return None
        nodes = tuple(sorted(self._ranks, key=_natural))
        return NodeList(nodes, nodes.index(self._node), "the ranks of MPI", {})

    def close(self) -> None:
        """Remove the entry of this node; the last node removes the directory."""
        try:
            self._own_entry.unlink(missing_ok=True)
            self._directory.rmdir()
        except OSError:
            return  # other nodes have entries, or it cannot be removed at all

    def _enter(self) -> float:
        """Write the entry of this node; return the time by the file system's clock."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        found = self._directory.stat()
        if found.st_uid != os.geteuid():
            owner = f"belongs to user {found.st_uid}, not to you"
            raise MonarchError(f"{self._directory}: {owner}")
        if found.st_mode & 0o077:
            mode = f"mode {stat.S_IMODE(found.st_mode):04o}, expected 0700"
            raise MonarchError(f"{self._directory}: must be private ({mode})")
        self._own_entry.touch(mode=0o600)
        return self._own_entry.stat().st_mtime

    def _count(self, name: str, now: float) -> None:
        entry = _ENTRY.fullmatch(name)
        if entry is None or entry[1] in self._ranks:
            return
        try:
            entered = (self._directory / name).stat().st_mtime
        except FileNotFoundError:
            return
        if abs(now - entered) < STALE_S:
            self._ranks[entry[1]] = int(entry[2])


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts n2 before n10."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]
