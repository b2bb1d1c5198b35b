"""The nodes of a job, from what its launch has put into the environment."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from monarch.cluster.names import by_own_daemons
from monarch.errors import UsageError
from monarch.hostlist import expand_hosts, read_hosts

Read = Callable[[Path], str]

HOST_LIST: Final = "the host list"

# Set for each process of an MPI launch, and for no batch script.
_RANK: Final = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PALS_RANKID")


@dataclass(frozen=True, slots=True)
class Membership:
    """The frozen list of a job's nodes, and which of them this is.

    Attributes:
        nodes: their names, in the same order on each of them.
        ports: those that a host list names.
        source: where the list is from.
    """

    nodes: tuple[str, ...]
    number: int
    source: str
    ports: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Alone:
    """This node is the whole job as far as anyone can know.

    Attributes:
        why: in words, after "this node works alone:".
        expected: whether other nodes were launched that cannot be found.
    """

    why: str
    expected: bool = False


@dataclass(frozen=True, slots=True)
class Scattered(Alone):
    """MPI has launched processes on several nodes, but says nothing of where.

    Attributes:
        size: how many processes there are.
        local: how many of them are on this node.
    """

    size: int = 0
    local: int = 0


def find_members(
    environ: Mapping[str, str], read: Read, hosts: Sequence[str], names: Sequence[str]
) -> Membership | Alone:
    """Find out which nodes the job has.

    Args:
        read: returns the text of a file that the environment names.
        hosts: what --hosts or `hosts:` gives, each `NAME[:PORT]` or a list of Slurm's.
        names: by which this node may be known, the surest first.

    Raises:
        UsageError: the hosts that were given cannot be meant.
    """
    if hosts:
        return _from_hosts(hosts, names)
    # The daemons of Open MPI may be a step, which lacks the node of mpiexec itself.
    if environ.get("SLURM_STEP_ID") and not by_own_daemons(environ):
        return _from_step(environ, names)
    if environ.get("SLURM_JOB_ID") and not launched_by_mpi(environ):
        return Alone("a batch script or shell of Slurm is one task on one node")
    return _from_mpi(environ, read, names)


def _from_hosts(hosts: Sequence[str], names: Sequence[str]) -> Membership | Alone:
    found = read_hosts(hosts)
    return _placed(found.nodes, names, HOST_LIST, found.ports)


def _from_step(environ: Mapping[str, str], names: Sequence[str]) -> Membership | Alone:
    listed = environ.get("SLURM_STEP_NODELIST", "")
    try:
        nodes = expand_hosts(listed)
    except UsageError as error:
        return Alone(f"SLURM_STEP_NODELIST cannot be read ({error})", expected=True)
    count = environ.get("SLURM_STEP_NUM_NODES")
    if not nodes or (count is not None and count != str(len(nodes))):
        why = f"SLURM_STEP_NODELIST={listed} does not name {count or 'any'} nodes"
        return Alone(why, expected=True)
    own = environ.get("SLURMD_NODENAME")
    return _placed(nodes, [own] if own else names, "the Slurm step", {})


def launched_by_mpi(environ: Mapping[str, str]) -> bool:
    """Return whether this process is one of those that MPI has launched."""
    return any(environ.get(name) for name in _RANK)


def _from_mpi(
    environ: Mapping[str, str], read: Read, names: Sequence[str]
) -> Membership | Alone:
    """MPI says how many processes it has; the batch system says where they may be."""
    if not launched_by_mpi(environ):
        return Alone("neither a launcher nor --hosts names other nodes")
    size, local = _ranks(environ)
    if size and size == local:
        return Alone("MPI has launched processes on this node only")
    found = _from_node_file(environ, read, names)
    if not size:
        return found
    if isinstance(found, Alone):
        return Scattered(found.why, expected=True, size=size, local=local)
    if size - local < len(found.nodes) - 1:
        why = f"{found.source} names more nodes than MPI has launched processes on"
        return Scattered(why, expected=True, size=size, local=local)
    return found


def _from_node_file(
    environ: Mapping[str, str], read: Read, names: Sequence[str]
) -> Membership | Alone:
    for variable in ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "LSB_HOSTS"):
        if not (value := environ.get(variable, "").strip()):
            continue
        try:
            text = value if variable == "LSB_HOSTS" else read(Path(value))
        except OSError as error:
            return Alone(f"{variable}: {error.strerror or error}", expected=True)
        return _placed(text.split(), names, variable, {})
    return Alone(
        "MPI says nothing about where its processes are; use --hosts", expected=True
    )


def _ranks(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return how many ranks there are and how many here, as MPI tells each; or 0, 0."""
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
) -> Membership | Alone:
    """Find ourselves in the list, by the whole name first, then by its first part."""
    unique = tuple(dict.fromkeys(nodes))
    number = _index(unique, names)
    if number is None:
        shown = ", ".join(names) or "a node without a name"
        return Alone(f"{source} does not name this node ({shown})", expected=True)
    if len(unique) == 1:
        return Alone(f"{source} names this node only")
    return Membership(unique, number, source, ports)


def _index(nodes: Sequence[str], names: Sequence[str]) -> int | None:
    for known_as in (str, _short):
        listed = [known_as(node) for node in nodes]
        for name in map(known_as, names):
            if listed.count(name) == 1:
                return listed.index(name)
    return None


def _short(name: str) -> str:
    return name if name.replace(".", "").isdigit() else name.partition(".")[0]
