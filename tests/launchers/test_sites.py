"""Typical sites: the recipe for Slurm under a real one, images of an older Debian."""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from monarch.doctor.findings import Level
from monarch.doctor.shim import check_root
from support import mpiexec
from support.dataset import Dataset
from support.launched import Site

pytest_plugins = ["support.launched_fixtures"]
pytestmark = [pytest.mark.launchers, pytest.mark.root]

RECIPES = Path(__file__).parents[2] / "configs" / "recipes"
# glibc 2.31 and Python 3.9; the wheel of Monarch is built on a newer system.
OLDER = "bullseye"
PACKAGES = "python3-minimal,libpython3-stdlib"
READ = "import sys; print(sum(len(open(n, 'rb').read()) for n in sys.argv[1:]))"
DEBOOTSTRAP_S = 300


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of an older Debian, which is kept where the MPIs are."""
    if (program := shutil.which("debootstrap")) is None:
        pytest.skip("needs the program debootstrap")
    place = mpiexec.home(tmp_path_factory.getbasetemp() / "launchers") / OLDER
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        words = [
            program,
            "--variant=minbase",
            f"--include={PACKAGES}",
            OLDER,
            str(place),
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"cannot install {OLDER}: {done.stdout[-200:]}")
        (place / "complete").touch()
    return place


@pytest.mark.timeout(DEBOOTSTRAP_S)
def test_python_of_an_older_debian_is_served_in_a_container(
    older: Path,
    dataset: Dataset,
    monarch_command: Path,
    tool: Callable[[str], str],
    run_root: Path,
) -> None:
    tool("bwrap")
    assert [one.level for one in check_root(older)] == [Level.OK]
    program = shlex.join(["python3", "-c", READ, *map(str, dataset.paths)])
    inside = f"bwrap --bind {older} / --tmpfs /tmp --dev /dev $(monarch env --bwrap)"
    words = ["run", "--data", str(dataset.root), "--tier", "ram:64MiB", "--"]

    done = subprocess.run(
        [
            monarch_command,
            *words,
            "sh",
            "-c",
            f'eval "{inside}" {shlex.quote(program)}',
        ],
        env=os.environ | {"PATH": f"{monarch_command.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == f"{dataset.size_bytes}\n", done.stderr
    assert "not active" not in done.stderr
    (row,) = [line for line in done.stderr.splitlines() if line.startswith("  ram ")]
    assert row.split()[1] == str(len(dataset.paths))


def test_recipe_for_slurm_checks_all_nodes_and_reads_the_origin_once(
    slurm_site: Site,
) -> None:
    site = slurm_site
    sizes = ["-N4", "--ntasks-per-node=2", "--wait", "--parsable", "-t", "10"]
    path = f"{site.command.parent}:{os.environ['PATH']}"

    ended = site.run(
        ["sbatch", *sizes, str(RECIPES / "slurm-job.sh"), *site.rank()],
        DATASET=str(site.data),
        PATH=path,
    )

    (said,) = (path.read_text() for path in site.folder.glob("slurm-*.out"))
    ended.well()
    assert "does not work" not in said
    assert said.count('"wrong": []') == 8
    site.read_once()
    (looked,) = (path.read_text() for path in site.folder.glob("monarch-doctor-*.txt"))
    assert len(re.findall(r"^m\d+n\d: Monarch can stage here", looked, re.M)) == 4
    assert "by the Slurm step" in looked
    (report,) = site.folder.glob("monarch-*.json")
    assert len(json.loads(report.read_text())["nodes"]) == 4
    site.nothing_left()
