"""The cluster of a job: its name, its nodes, and how their agents find each other."""

from monarch.cluster.interface import address_of, own_addresses
from monarch.cluster.job import (
    RUN_VARIABLE,
    find_run,
    run_root,
    run_roots,
    shared_job,
)
from monarch.cluster.nodes import (
    NodeList,
    RankRegistry,
    SingleNode,
    UnnamedNodes,
    find_nodes,
    launched_by_mpi,
)
from monarch.cluster.rendezvous_directory import (
    given_secret,
    job_secret,
    open_rendezvous,
    read_secret,
)
from monarch.hostlist import expand_hosts
from monarch.native import node_name, safe_name

__all__ = [
    "RUN_VARIABLE",
    "NodeList",
    "RankRegistry",
    "SingleNode",
    "UnnamedNodes",
    "address_of",
    "expand_hosts",
    "find_nodes",
    "find_run",
    "given_secret",
    "job_secret",
    "launched_by_mpi",
    "node_name",
    "open_rendezvous",
    "own_addresses",
    "read_secret",
    "run_root",
    "run_roots",
    "safe_name",
    "shared_job",
]
