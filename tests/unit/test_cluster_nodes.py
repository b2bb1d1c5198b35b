"""Which nodes a job has, from the environments that launchers really make."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.cluster import NodeList, SingleNode, UnnamedNodes, expand_hosts, find_nodes
from monarch.errors import UsageError


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n1,n2 n3", ["n1", "n2", "n3"]),
        ("n[0-3,7]", ["n0", "n1", "n2", "n3", "n7"]),
        ("gpu-[09-11]x", ["gpu-09x", "gpu-10x", "gpu-11x"]),
        ("n[0-1],gpu-[01-02]x", ["n0", "n1", "gpu-01x", "gpu-02x"]),
        ("r[1-2]c[3,5]", ["r1c3", "r1c5", "r2c3", "r2c5"]),
        ("n[008-010]", ["n008", "n009", "n010"]),
        ("n1,n[1-2]", ["n1", "n2"]),
        ("login.site.edu", ["login.site.edu"]),
    ],
)
def test_a_host_list_names_its_hosts_in_order(text, hosts):
    assert list(expand_hosts(text)) == hosts


@pytest.mark.parametrize(
    "text",
    [
        *("n[", "n]", "n[1", "n[[1]]", "n[]", "n[a-b]", "n[3-1]", "n[1-2-3]", "n[-1]"),
        *("n[0-99999999]", "n[0-999][0-999]", "n[" + "9" * 5000 + "]", "n[٣]"),
    ],
)
def test_a_host_list_that_cannot_be_read_is_refused(text):
    with pytest.raises(UsageError, match="host list"):
        expand_hosts(text)


@given(st.text(alphabet="n01-[],x ", max_size=30))
def test_any_text_is_a_host_list_or_refused(text):
    try:
        hosts = expand_hosts(text)
    except UsageError:
        return
    assert len(set(hosts)) == len(hosts)
    assert not any(set(host) & set("[], ") for host in hosts)


STEP = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[0-3]",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_JOB_NODELIST": "n[0-7]",
    "SLURM_NODEID": "2",
    "SLURMD_NODENAME": "n2",
}
BATCH = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NODELIST": "n[0-7]",
    "SLURM_NNODES": "8",
    "SLURM_NODELIST": "n[0-7]",
    "SLURMD_NODENAME": "n0",
}
# `mpiexec -n 4 -ppn 1` of MPICH's Hydra, and of Open MPI 5
HYDRA = {
    "PMI_RANK": "1",
    "PMI_SIZE": "4",
    "PMI_FD": "9",
    "MPI_LOCALNRANKS": "1",
    "MPI_LOCALRANKID": "0",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "PMIX_NAMESPACE": "prterun-n0-22350@1",
    "PMIX_RANK": "1",
    "PMIX_HOSTNAME": "n1",
}
PALS = {"PALS_RANKID": "1", "PALS_APID": "a1", "PMI_SIZE": "4", "PALS_LOCAL_SIZE": "1"}
FILES = {
    "/var/spool/pbs/aux/9.pbs": "n0\nn0\nn1\nn1\nn2\nn2\n",
    "/lsf/hosts": "n0\nn1\n",
}
PBS = {"PBS_JOBID": "9.pbs", "PBS_NODEFILE": "/var/spool/pbs/aux/9.pbs"}
LSF = {"LSB_JOBID": "9", "LSB_HOSTS": "n0 n0 n1 n1"}
N4 = ("n0", "n1", "n2", "n3")


def find(environ, *names, hosts=()):
    def read(path):
        try:
            return FILES[os.fspath(path)]
        except KeyError:
            raise FileNotFoundError(2, "No such file or directory") from None

    return find_nodes(environ, read, hosts, names or ("n1",))


@pytest.mark.parametrize(
    ("environ", "name", "nodes", "number", "source"),
    [
        (STEP, "whatever", N4, 2, "the Slurm step"),
        ({**STEP, **HYDRA}, "n2", N4, 2, "the Slurm step"),
        ({**PBS, **HYDRA}, "n1", ("n0", "n1", "n2"), 1, "PBS_NODEFILE"),
        ({**PBS, **OPEN_MPI}, "n1.site.edu", ("n0", "n1", "n2"), 1, "PBS_NODEFILE"),
        ({**PBS, **PALS}, "n2", ("n0", "n1", "n2"), 2, "PBS_NODEFILE"),
        ({**LSF, **HYDRA}, "n0", ("n0", "n1"), 0, "LSB_HOSTS"),
        (
            {"LSB_DJOB_HOSTFILE": "/lsf/hosts", **OPEN_MPI},
            "n1",
            ("n0", "n1"),
            1,
            "LSB_DJOB_HOSTFILE",
        ),
    ],
    ids=["srun", "hydra in slurm", "hydra", "open mpi", "pals", "lsf", "lsf file"],
)
def test_the_launch_names_the_nodes(environ, name, nodes, number, source):
    found = find(environ, name)

    assert found == NodeList(nodes, number, source, {})


@pytest.mark.parametrize(
    ("environ", "reason", "expected"),
    [
        ({}, "neither a launcher", False),
        (BATCH, "batch script", False),
        (PBS, "neither a launcher", False),
        (LSF, "neither a launcher", False),
        ({**STEP, "SLURM_STEP_NUM_NODES": "3"}, "does not name 3 nodes", True),
        ({**STEP, "SLURM_STEP_NODELIST": "n[0-"}, "is not valid", True),
        ({**STEP, "SLURM_STEP_NODELIST": ""}, "does not name 4 nodes", True),
        ({**STEP, "SLURMD_NODENAME": "x"}, "does not name this node (x)", True),
        (
            {**STEP, "SLURM_STEP_NODELIST": "n2", "SLURM_STEP_NUM_NODES": "1"},
            "this node only",
            False,
        ),
        (HYDRA, "use --hosts", True),
        (OPEN_MPI, "use --hosts", True),
        ({**STEP, **OPEN_MPI}, "use --hosts", True),
        ({**HYDRA, "MPI_LOCALNRANKS": "4"}, "this node only", False),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, "this node only", False),
        ({**HYDRA, "PBS_NODEFILE": "/gone"}, "No such file", True),
        ({**PBS, "PMI_RANK": "0"}, "does not name this node", True),
    ],
)
def test_without_a_node_list_a_node_is_alone_and_reports_why(environ, reason, expected):
    found = find(environ, environ.get("SLURMD_NODENAME", "x1"))

    assert isinstance(found, SingleNode)
    assert reason in found.reason
    assert found.expected is expected


@pytest.mark.parametrize(
    ("environ", "size", "local"),
    [
        (HYDRA, 4, 1),
        (OPEN_MPI, 4, 1),
        (PALS, 4, 1),
        ({**STEP, **OPEN_MPI}, 4, 1),
        ({**PBS, **HYDRA, "PMI_SIZE": "2"}, 2, 1),
        ({**HYDRA, "PBS_NODEFILE": "/gone"}, 4, 1),
    ],
    ids=["hydra", "open mpi", "pals", "in slurm", "fewer than nodes", "no file"],
)
def test_ranks_on_nodes_that_nobody_names_are_scattered(environ, size, local):
    found = find(environ)

    assert isinstance(found, UnnamedNodes)
    assert (found.size, found.local, found.expected) == (size, local, True)


@pytest.mark.parametrize("size", ["", "many", "0", "-4"])
def test_ranks_that_cannot_be_counted_are_not_scattered(size):
    assert type(find({**HYDRA, "PMI_SIZE": size})) is SingleNode


def test_given_hosts_take_precedence_over_the_launch():
    found = find(STEP, "b", hosts=["a", "b:7001", "c[1-2]", "d[1-2]:7002"])

    nodes = ("a", "b", "c1", "c2", "d1", "d2")
    ports = {1: 7001, 4: 7002, 5: 7002}
    assert found == NodeList(nodes, 1, "the host list", ports)


@pytest.mark.parametrize(
    ("names", "number"),
    [
        (["n1.site.edu"], 1),
        (["n1"], 1),
        (["mine", "n0.site.edu"], 0),
        (["10.0.0.7"], 2),
    ],
)
def test_a_node_finds_itself_by_its_short_name_too(names, number):
    hosts = ["n0.site.edu", "n1.site.edu", "10.0.0.7", "10.0.0.8"]

    assert find({}, *names, hosts=hosts).number == number


def test_a_short_name_that_two_nodes_share_finds_neither():
    assert isinstance(find({}, "n0", hosts=["n0.a", "n0.b"]), SingleNode)


@pytest.mark.parametrize(
    "hosts",
    [
        *(["a", "a"], ["a", "b,a"], ["a:x"], ["a:0"], ["a:70000"], ["a:"], ["a:1:2"]),
        *(["a[1-"], [":7001"], [""], ["a;b"], ["a/b"], ["--"], ["x" * 254]),
    ],
)
def test_invalid_hosts_are_refused(hosts):
    with pytest.raises(UsageError):
        find({}, hosts=hosts)
