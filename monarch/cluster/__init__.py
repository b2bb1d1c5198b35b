"""Which job and which node this is, and which other nodes the job has."""

from monarch.cluster.hostsjob import hosts_job, mesh_job
from monarch.cluster.interface import address_of, own_addresses
from monarch.cluster.names import (
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
    Alone,
    Membership,
    Scattered,
    find_members,
    launched_by_mpi,
)
from monarch.cluster.rank_registry import Census
from monarch.cluster.rendezvous import rendezvous_directory, usual_rendezvous
from monarch.cluster.rendezvous_directory import given_secret, job_secret, read_secret
from monarch.cluster.stale_files import Remains, remove_remains
from monarch.hostlist import expand_hosts

__all__ = [
    "NAME_MAX",
    "RUN_VARIABLE",
    "Alone",
    "Census",
    "Membership",
    "Remains",
    "Scattered",
    "address_of",
    "expand_hosts",
    "find_members",
    "find_run",
    "given_secret",
    "hosts_job",
    "job_name",
    "job_secret",
    "launched_by_mpi",
    "mesh_job",
    "node_name",
    "own_addresses",
    "read_secret",
    "remove_remains",
    "rendezvous_directory",
    "run_root",
    "run_roots",
    "safe_name",
    "usual_rendezvous",
]
