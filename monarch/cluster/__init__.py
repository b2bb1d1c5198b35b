"""The cluster of a job: its name, its nodes, and how their agents find each other."""

from monarch.cluster.hostsjob import hosts_job, mesh_job
from monarch.cluster.interface import address_of, own_addresses
from monarch.cluster.job import (
    NAME_MAX,
    RUN_VARIABLE,
    find_run,
    job_name,
    node_name,
    run_root,
    run_roots,
    safe_name,
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
    default_rendezvous,
    given_secret,
    job_secret,
    open_rendezvous,
    read_secret,
)
from monarch.cluster.stale_files import StaleFiles, remove_stale_files
from monarch.hostlist import expand_hosts

__all__ = [
    "NAME_MAX",
    "RUN_VARIABLE",
    "NodeList",
    "RankRegistry",
    "SingleNode",
    "StaleFiles",
    "UnnamedNodes",
    "address_of",
    "default_rendezvous",
    "expand_hosts",
    "find_nodes",
    "find_run",
    "given_secret",
    "hosts_job",
    "job_name",
    "job_secret",
    "launched_by_mpi",
    "mesh_job",
    "node_name",
    "open_rendezvous",
    "own_addresses",
    "read_secret",
    "remove_stale_files",
    "run_root",
    "run_roots",
    "safe_name",
]
