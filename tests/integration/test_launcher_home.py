"""Where run directories are when another user has taken their usual place."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.dataset import Dataset
from support.launcher import HEALTHY, START, Launch

pytest_plugins = ["support.launcher_fixtures"]
pytestmark = pytest.mark.root

STRANGER = 12345
RANKS = 16
USUAL = f"/dev/shm/monarch-{os.geteuid()}"

# Takes the lock for choosing new names.
HOLDER = """
import fcntl, os, sys, time
os.setuid(12345)
fcntl.flock(os.open("/dev/shm", os.O_RDONLY), fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def in_taken_place(
    script: str, environ: dict[str, str], *words: object
) -> subprocess.CompletedProcess[str]:
    """Runs a shell script where a stranger has made our directory in /dev/shm."""
    environ = {k: v for k, v in environ.items() if k != "MONARCH_STAGING_RUN_DIR"}
    take = (
        "mount -t tmpfs -o mode=1777 x /dev/shm && "
        f"install -d -m 777 -o {STRANGER} -g {STRANGER} {USUAL}\n"
    )
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", take + script, "x", *map(str, words)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_directory_made_by_another_user_is_skipped(launch: Launch) -> None:
    script = '"$@"; stat -c "%a %u %n" /dev/shm/*'
    show = launch.argv("sh", "-c", "echo $MONARCH_STAGING_RUN")

    done = in_taken_place(script, launch.environ, *show)

    run, theirs, ours = done.stdout.splitlines()
    place = ours.split()[2]
    assert theirs == f"777 {STRANGER} {USUAL}"
    assert ours == f"700 {os.geteuid()} {place}"
    assert place.startswith(f"{USUAL}.")
    assert run.startswith(f"{place}/local-")
    assert done.stderr.splitlines()[0] == (
        f"monarch: {USUAL} belongs to user {STRANGER}, not to you; using {run}"
    )
    assert done.stderr.splitlines()[-1] == "the report"


def test_simultaneous_launchers_still_share_one_run_directory(
    launch: Launch, tmp_path: Path
) -> None:
    launch.script([["sleep", 0.3], *START, *HEALTHY[len(START) :]])
    rank = 'echo "$MONARCH_STAGING_RUN"; until [ -e "$0" ]; do sleep 0.05; done'
    script = f"""
        for i in $(seq {RANKS}); do "$@" >{tmp_path}/out.$i & pids="$pids $!"; done
        until [ $(cat {tmp_path}/out.* | wc -l) = {RANKS} ]; do sleep 0.05; done
        touch {tmp_path}/gate; wait $pids; ls -d {USUAL}.*
    """

    done = in_taken_place(
        script,
        launch.environ,
        *launch.argv("-q", "--job", "j", "sh", "-c", rank, str(tmp_path / "gate")),
    )

    places = {path.read_text() for path in tmp_path.glob("out.*")}
    assert len(places) == 1, done.stderr
    assert len(done.stdout.split()) == 1
    assert len(launch.events("start")) == 1


def test_a_directory_that_the_user_has_opened_to_others_is_refused(
    launch: Launch,
) -> None:
    script = f'rmdir {USUAL}; mkdir -m 755 {USUAL}; "$@"; ls /dev/shm'

    done = in_taken_place(script, launch.environ, *launch.argv("echo", "hello"))

    assert done.stdout == f"hello\n{Path(USUAL).name}\n"
    assert done.stderr == (
        f"monarch: {USUAL} has mode 0755, not 0700; the program runs without staging\n"
    )


def test_a_lock_held_by_another_user_costs_a_second(
    launch: Launch, tmp_path: Path
) -> None:
    (tmp_path / "holder.py").write_text(HOLDER)
    script = f"""
        {sys.executable} {tmp_path}/holder.py >{tmp_path}/held &
        until grep -q held {tmp_path}/held; do sleep 0.02; done
        "$@"; kill $!
    """

    done = in_taken_place(
        script, launch.environ, *launch.argv("-q", "sh", "-c", "echo $LD_PRELOAD")
    )

    assert done.stdout.startswith(f"{USUAL}.")


def test_a_job_is_found_although_its_usual_place_is_free_again(
    launch: Launch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    wait = f"touch {gate}.up; until [ -e {gate} ]; do sleep 0.05; done"
    script = f"""
        "$@" --job j sh -c '{wait}' &
        until [ -e {gate}.up ]; do sleep 0.02; done
        rmdir {USUAL}
        "$@" --job other printenv MONARCH_STAGING_RUN
        "$@" --job j printenv MONARCH_STAGING_RUN
        touch {gate}; wait
    """

    done = in_taken_place(script, launch.environ, *launch.argv("-q"))

    other, mine = done.stdout.splitlines()
    assert Path(other).parent == Path(mine).parent
    assert Path(mine).name.startswith("j.")
    assert len(launch.events("start")) == 2


def test_the_other_verbs_search_the_same_places(
    monarch_command: Path, dataset: Dataset, tmp_path: Path
) -> None:
    look = "$M status --job j; env -u MONARCH_STAGING_RUN $M status --json; cat $1/*/*"
    script = f"""
        export M={monarch_command}
        $M run -q --job j --data $1 --report $2/r.json sh -c '{look}' x $1 >$2/out
        home=$(ls -d {USUAL}.*)
        mkdir -m 700 $home/dead.n; touch $home/dead.n/lock
        $M clean
        ls -A $home
    """
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}

    done = in_taken_place(script, environ, dataset.root, tmp_path)

    head = (tmp_path / "out").read_bytes().splitlines()
    assert head[0].startswith(f"{USUAL}.".encode()), done.stderr
    assert b": ready, agent " in head[0]
    answer = next(line for line in head if line.startswith(b'{"'))
    assert json.loads(answer)["run"].startswith(f"{USUAL}.")
    report = json.loads((tmp_path / "r.json").read_text())
    assert sum(tier["files"] for tier in report["tiers"]) > 0
    assert done.stdout.startswith(f"removed {USUAL}.")
    removed, freed = done.stdout.splitlines()
    assert removed.startswith("removed ")
    assert freed.startswith("freed ")
