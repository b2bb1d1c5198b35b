"""Jobs under a real Slurm, with both of its ways to find and end a step's processes."""

import json
import re
import shlex
import signal
import time
from pathlib import Path

import pytest

from support.commands import LIMIT_S, Command
from support.launched import Site
from support.processes import wait_until
from support.rank import FAILED
from support.slurm import Slurm

pytest_plugins = ["support.launched_fixtures"]
pytestmark = [pytest.mark.launchers, pytest.mark.root]

EIGHT = ("srun", "-N4", "--ntasks-per-node=2")
FOUR = ("srun", "-N4", "--ntasks-per-node=1")


def batch(site: Site, lines: list[str], *options: str) -> list[str]:
    """`sbatch --wait` of a script, which prints into files slurm-JOB.out."""
    script = site.folder / "batch.sh"
    script.write_text("\n".join(["#!/bin/bash", *lines, ""]))
    return ["sbatch", "--wait", "--parsable", *options, str(script)]


def removed_by_the_next_step(site: Site) -> None:
    """All agents have gone; where KILL took one, the next on its node cleans up."""
    wait_until(lambda: not site.agents(), "the end of the agents")
    site.run([*FOUR, *site.monarch(site.rank())]).well()
    site.nothing_left()


def printed(site: Site) -> dict[str, str]:
    """The output of the batch jobs, by their names."""
    files = site.folder.glob("slurm-*.out")
    return {path.stem.removeprefix("slurm-"): path.read_text() for path in files}


def test_nodes_of_a_step_read_the_origin_once_and_leave_one_report(
    slurm_site: Site,
) -> None:
    site = slurm_site

    ended = site.run([*EIGHT, *site.monarch(site.rank())]).well()

    assert [one["rank"] for one in ended.ranks] == list(range(8))
    # Ranks of one node share a run directory, those of two nodes do not.
    runs = {one["node"]: one["run"] for one in ended.ranks}
    assert len(set(runs.values())) == len(runs) == 4
    assert all(one["run"] == runs[one["node"]] for one in ended.ranks)
    site.read_once()
    assert len(ended.reports) == 1
    assert "8 of 8 processes on 4 nodes" in ended.reports[0]
    assert len(ended.lines("monarch: staging ")) == 1
    site.nothing_left()


def test_failing_rank_fails_the_step(slurm_site: Site) -> None:
    site = slurm_site

    site.run([*EIGHT, *site.monarch(site.rank("--fail", "3"))]).well(FAILED)

    site.nothing_left()


def test_step_that_is_killed_for_a_failing_rank_ends_as_without_monarch(
    slurm_site: Site,
) -> None:
    site = slurm_site
    program = ["bash", "-c", "[ $SLURM_PROCID = 3 ] && exit 5; exec sleep 100"]
    step = [*EIGHT, "--kill-on-bad-exit"]

    plain = site.run([*step, *program])
    ended = site.run([*step, *site.monarch(program)])

    assert plain.status != 0
    ended.well(plain.status)
    removed_by_the_next_step(site)


def test_node_whose_tasks_have_ended_serves_the_others(slurm_site: Site) -> None:
    site = slurm_site
    go, report = site.folder / "go", site.folder / "report.json"
    script = (
        f'touch {go}.$SLURM_PROCID; [ "$SLURM_PROCID" = 0 ] && exit\n'
        f'until [ -e {go} ]; do sleep 0.05; done; exec "$@"'
    )
    program = ["bash", "-c", script, "bash", *site.rank()]
    options = ["--set", "peers.mode=partition", "--set", "fill.enabled=false"]
    line = site.monarch(program, *options, "--report", str(report))

    running = site.start([*FOUR, *line])
    site.await_ranks(go, 4)
    time.sleep(1)  # an agent that waits for its own programs only has ended by then
    go.touch()
    running.end().well()

    first, *_ = json.loads(report.read_text())["nodes"]
    assert first["opens"] == 0
    assert first["served_files"] > 0
    site.read_once()
    site.nothing_left()


def test_batch_script_without_srun_is_one_task_on_one_node(slurm_site: Site) -> None:
    site = slurm_site
    line = shlex.join(site.monarch(site.rank()))

    site.run(batch(site, [line], "-N4", "--ntasks-per-node=2")).well()

    (said,) = printed(site).values()
    assert said.count('"rank": 0') == said.count('"wrong": []') == 1
    assert said.count("monarch: active in ") == 1
    assert "works alone" not in said
    site.nothing_left()


def test_shell_of_an_allocation_is_one_task_on_one_node(slurm_site: Site) -> None:
    site = slurm_site
    line = ["salloc", "-Q", "-N4", "--ntasks-per-node=2", *site.monarch(site.rank())]

    ended = site.run(line).well()

    assert len(ended.ranks) == len(ended.reports) == 1
    assert not ended.lines("works alone")
    site.nothing_left()


def test_batch_script_has_the_status_of_its_program(slurm_site: Site) -> None:
    site = slurm_site
    line = "exec " + shlex.join(site.monarch(site.rank("--fail", "0"), "-q"))

    site.run(batch(site, [line])).well(FAILED)

    site.nothing_left()


def test_two_steps_at_once_in_one_allocation_are_two_jobs(slurm_site: Site) -> None:
    site = slurm_site
    go = site.folder / "go"
    step = [*FOUR, "--overlap", *site.monarch(site.rank("--until", go), "-q")]
    both = f"{shlex.join(step)} & {shlex.join(step)} & wait -n && wait -n"

    running = site.start(["salloc", "-Q", "-N4", "bash", "-c", both])
    wait_until(lambda: len(site.agents()) == 8, "an agent per step and node", LIMIT_S)
    go.touch()
    ended = running.end().well()

    assert len({one["run"] for one in ended.ranks}) == 8
    site.nothing_left()


def test_each_task_of_an_array_is_a_job(slurm_site: Site) -> None:
    site = slurm_site
    step = shlex.join(["srun", "-N2", *site.monarch(site.rank())])

    site.run(batch(site, [step], "-N2", "--array=0-3")).well()

    said = printed(site)
    assert len(said) == 4
    assert all(text.count('"wrong": []') == 2 for text in said.values())
    site.nothing_left()


def waiting_step(site: Site, name: str, go: Path) -> Command:
    """A step of eight ranks that have read all and wait."""
    line = [*EIGHT, "-J", name, *site.monarch(site.rank("--until", go))]
    running = site.start(line)
    site.await_ranks(go, 8)
    return running


def beats(go: Path) -> list[Path]:
    """The files that waiting ranks touch."""
    return sorted(go.parent.glob(f"{go.name}.*"))


def still(go: Path) -> bool:
    """Whether no rank has touched its file for as long as an agent may be silent."""
    before = [path.stat().st_mtime_ns for path in beats(go)]
    time.sleep(1)
    return before == [path.stat().st_mtime_ns for path in beats(go)]


def test_cancelled_step_leaves_nothing_behind(slurm_site: Site, cluster: Slurm) -> None:
    site = slurm_site
    up = site.folder / "up"
    program = ["bash", "-c", f"touch {up}.$SLURM_PROCID; exec sleep 100"]
    running = site.start([*EIGHT, "-J", "cancelled", *site.monarch(program)])
    site.await_ranks(up, 8)

    cluster.ask("scancel", "-n", "cancelled")

    assert running.end().status != 0
    site.nothing_left()


def test_step_that_is_cancelled_at_its_start_is_cleaned_up(
    slurm_site: Site, cluster: Slurm
) -> None:
    site = slurm_site
    running = site.start([*EIGHT, "-J", "early", *site.monarch(["sleep", "100"])])
    wait_until(site.agents, "an agent", LIMIT_S)

    cluster.ask("scancel", "-n", "early")
    running.end()

    removed_by_the_next_step(site)


def test_step_that_resists_is_killed_and_cleaned_up(
    slurm_site: Site, cluster: Slurm
) -> None:
    site = slurm_site
    running = waiting_step(site, "stubborn", site.folder / "never")

    # The ranks note TERM and continue: after KillWait all of them get KILL.
    cluster.ask("scancel", "-n", "stubborn")
    assert running.end().status != 0
    cluster.clear()

    removed_by_the_next_step(site)


def test_signal_to_the_step_reaches_each_rank_once(
    slurm_site: Site, cluster: Slurm
) -> None:
    site = slurm_site
    go = site.folder / "go"
    running = waiting_step(site, "signalled", go)
    agents = site.agents()

    cluster.ask("scancel", "-s", "USR1", "-n", "signalled")
    wait_until(lambda: all(path.stat().st_size for path in beats(go)), "8 signals")
    go.touch()
    ended = running.end().well()

    assert len(agents) == 4
    assert [one["signals"] for one in ended.ranks] == [[int(signal.SIGUSR1)]] * 8
    site.nothing_left()


def test_suspended_step_resumes(slurm_site: Site, cluster: Slurm) -> None:
    site = slurm_site
    go = site.folder / "go"
    running = waiting_step(site, "suspended", go)
    (job,) = cluster.queue()

    cluster.ask("scontrol", "suspend", job)
    wait_until(lambda: still(go), "eight ranks that do nothing")
    go.touch()
    cluster.ask("scontrol", "resume", job)

    running.end().well()
    site.nothing_left()


def test_ram_tier_is_a_share_of_the_steps_memory(
    slurm_site: Site, cluster: Slurm
) -> None:
    if cluster.proctrack != "cgroup":
        pytest.skip("only a cgroup limits the memory of a step")
    site = slurm_site

    ended = site.run(
        ["srun", "-N1", "--mem=400", *site.monarch(site.rank(), "--tier", "ram:25%")]
    ).well()

    # The segments of the agent count in the share.
    found = re.search(r"to ram ([0-9.]+) MiB", ended.stderr)
    assert found
    assert 90 < float(found[1]) <= 100


def test_nodes_of_a_step_stage_before_a_job(slurm_site: Site) -> None:
    site = slurm_site
    config = site.folder / "stage.yaml"
    tier = f"path: '{site.folder}/tier-${{SLURMD_NODENAME}}', capacity: 64MiB"
    config.write_text(f"tiers: [{{name: ssd, kind: ssd, {tier}}}]\nretain: node\n")
    make = f'mkdir "{site.folder}/tier-$SLURMD_NODENAME"'
    site.run([*FOUR, "sh", "-c", make]).well()
    words = ["-c", str(config), "--data", str(site.data)]

    staged = site.run(
        [*FOUR, str(site.command), "stage", *words, "--mode", "replicate"]
    ).well()

    assert len(staged.stdout.splitlines()) == 5
    assert " on 4 nodes in " in staged.stdout
    site.read_once()
    site.nothing_left()
    # The next job adopts the nodes' Replicas, and reads nothing from the origin.
    site.origin.reset()
    run = [str(site.command), "run", *words, "--set", "cold_open.mode=wait", "--"]
    site.run([*FOUR, *run, *site.rank()]).well()
    assert site.origin.counts().read_bytes == 0
