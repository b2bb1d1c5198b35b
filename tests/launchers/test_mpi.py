"""Jobs under the mpiexec of MPICH and of Open MPI, alone and inside Slurm."""

import signal

import pytest

from support.commands import Ended
from support.launched import Site
from support.mpiexec import HOSTS, Mpi
from support.processes import wait_until
from support.slurm import Slurm

pytest_plugins = ["support.launched_fixtures"]
pytestmark = [pytest.mark.launchers]


def shared_by_four(site: Site, ended: Ended, ranks: int) -> None:
    """All ranks were right and met; four nodes read the origin once; one report."""
    assert [one["rank"] for one in ended.ranks] == list(range(ranks))
    assert all(one["size"] == ranks for one in ended.ranks)
    assert len({one["run"] for one in ended.ranks}) == 4
    site.read_once()
    assert len(ended.reports) == 1
    assert f"{ranks} of {ranks} processes on 4 nodes" in ended.reports[0]


def test_ranks_of_one_machine_share_an_agent(site: Site, mpi: Mpi) -> None:
    program = site.rank("--mpi", python=mpi.python)

    ended = site.run([*mpi.here(4), *site.monarch(program)]).well()

    assert [one["size"] for one in ended.ranks] == [4] * 4
    assert len({one["run"] for one in ended.ranks}) == 1
    assert len(ended.reports) == 1
    site.read_once()
    site.nothing_left()


@pytest.mark.parametrize("per_host", [1, 2])
def test_nodes_that_no_list_names_find_each_other(
    site: Site, mpi: Mpi, per_host: int
) -> None:
    program = site.rank("--mpi", python=mpi.python)

    line = [*mpi.on_hosts(site.folder, per_host), *site.monarch(program)]
    ended = site.run(line).well()

    shared_by_four(site, ended, 4 * per_host)
    site.nothing_left()


def test_rank_that_fails_while_the_others_wait_for_it_ends_the_job(
    site: Site, mpi: Mpi
) -> None:
    program = site.rank("--mpi", "--fail", "2", python=mpi.python)

    ended = site.run([*mpi.here(4), *site.monarch(program)])

    # The rank's own status, or that of a rank that was killed or gave up because of it.
    assert ended.status != 0

    site.nothing_left()


def test_mpiexec_that_is_terminated_leaves_nothing(site: Site, mpi: Mpi) -> None:
    up = site.folder / "up"
    program = ["sh", "-c", f"touch {up}.$$; exec sleep 100"]
    running = site.start([*mpi.on_hosts(site.folder), *site.monarch(program)])
    site.await_ranks(up, 4)

    running.process.send_signal(signal.SIGTERM)
    running.end()

    site.nothing_left()


def test_agents_started_by_mpi_serve_later_programs(site: Site, mpi: Mpi) -> None:
    # The other MPI is tested at the same time.
    job, data = ("--job", f"early-{mpi.name}"), ("--data", str(site.data))
    agent = [str(site.command), "agent", *job, *data, "--tier", "ram:64MiB"]
    agents = site.start([*mpi.on_hosts(site.folder), *agent], **mpi.environ)
    wait_until(lambda: on_each_host(site, "status", *job), "four agents")
    program = site.rank("--mpi", python=mpi.python)
    run = [str(site.command), "run", *job, "--", *program]
    ended = site.run([*mpi.on_hosts(site.folder, 2), *run]).well()

    assert [one["size"] for one in ended.ranks] == [8] * 8
    assert "8 of 8 processes on 4 nodes" in agents.end().well().reports[0]
    site.read_once()
    site.nothing_left()


def on_each_host(site: Site, *words: str) -> bool:
    """Whether a verb of `monarch` succeeds on each of the hosts."""
    line = [str(site.command), *words]
    each = [site.run(line, MONARCH_STAGING_NODE=host) for host in HOSTS]
    return not any(one.status for one in each)


@pytest.mark.root
def test_ranks_of_slurm_stage_for_a_later_step(
    slurm_site: Site, cluster: Slurm, mpich: Mpi
) -> None:
    site = slurm_site
    tier = f"ssd:200MiB:{site.folder}/tier.$SLURMD_NODENAME"
    keep = ("--set", "retain=node", "--set", "peers.mode=partition")
    words = ["--data", str(site.data), "--tier", tier, *keep]
    step = ["srun", "-N4", "--ntasks-per-node=1"]
    for node in cluster.nodes:
        (site.folder / f"tier.{node}").mkdir()

    stage = [str(site.command), "stage", "--mpi", *words]
    site.run([*step, "--mpi=pmi2", *in_shell(stage)], **mpich.environ).well()
    site.read_once()
    run = [str(site.command), "run", *words, "--", *site.rank()]
    ended = site.run([*step, *in_shell(run)]).well()

    assert len(ended.ranks) == 4
    site.read_once()


def in_shell(words: list[str]) -> list[str]:
    """A command whose words name variables of the node that it runs on."""
    return ["sh", "-c", "exec " + " ".join(f'"{word}"' for word in words)]


@pytest.mark.root
def test_slurm_starts_the_ranks_of_mpich(slurm_site: Site, mpich: Mpi) -> None:
    site = slurm_site
    step = ["srun", "--mpi=pmi2", "-N4", "--ntasks-per-node=2"]
    program = site.rank("--mpi", python=mpich.python)

    ended = site.run([*step, *site.monarch(program)]).well()

    shared_by_four(site, ended, 8)
    site.nothing_left()


@pytest.mark.root
def test_mpiexec_starts_ranks_in_an_allocation_of_slurm(
    slurm_site: Site, mpi: Mpi
) -> None:
    site = slurm_site
    program = site.rank("--mpi", python=mpi.python)
    ranks = ["-n", "8"] if mpi.is_open_mpi else ["-n", "8", "-ppn", "2"]
    allocation = ["salloc", "-Q", "-N4", "--ntasks-per-node=2"]

    line = [*allocation, *mpi.launch(*ranks), *site.monarch(program)]
    ended = site.run(line).well()

    shared_by_four(site, ended, 8)
    site.nothing_left()


def test_the_same_command_on_each_host_is_one_job(site: Site) -> None:
    """`--hosts`, as a shell on each host would start it."""
    line = site.monarch(site.rank(), "--hosts", ",".join(HOSTS))

    running = [site.start(line, MONARCH_STAGING_NODE=host) for host in HOSTS]
    ended = [one.end().well() for one in running]

    assert [len(one.ranks) for one in ended] == [1] * 4
    assert len([line for one in ended for line in one.reports]) == 1
    site.read_once()
    site.nothing_left()
