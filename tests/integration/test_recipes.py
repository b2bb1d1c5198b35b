"""The recipes of configs/: each is run with the real command, or at least read."""

import os
import re
import subprocess
import sys
import tomllib
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.dataset import Dataset
from support.stand_ins import path_with_stand_ins

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "configs" / "recipes"
SCRIPTS = sorted(RECIPES.glob("*.sh"))


@pytest.fixture
def played(tmp_path: Path, monarch_command: Path, dataset: Dataset) -> dict[str, str]:
    """An environment in which srun, mpiexec and others are played."""
    path = path_with_stand_ins(tmp_path, monarch_command)
    return os.environ | {"DATASET": str(dataset.root), "PATH": path}


def run(
    words: list[str], folder: Path, environ: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", *words],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.fixture
def site(
    tmp_path: Path, run_root: Path, played: dict[str, str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs a recipe."""

    def run_recipe(
        name: str, *words: str, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        return run([str(RECIPES / name), *words], tmp_path, played | environ)

    return run_recipe


def reading(dataset: Dataset) -> list[str]:
    names = " ".join(map(str, dataset.paths))
    return ["sh", "-c", f"cat {names} >/dev/null; echo $*", "sh"]


def slurm(**more: str) -> dict[str, str]:
    return {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1"} | more


# -- read only ----------------------------------------------------------------------


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_recipe_is_a_script_that_opens_with_its_name(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)

    assert script.read_text().startswith(f"#!/bin/bash\n# {script.name} - ")


def test_shellcheck_finds_nothing_in_the_recipes(tool: Callable[[str], str]) -> None:
    subprocess.run([tool("shellcheck"), *SCRIPTS], check=True)


def test_each_recipe_is_in_the_guide_of_configs() -> None:
    guide = (ROOT / "configs" / "README.md").read_text()

    named = set(re.findall(r"\(recipes/([\w./-]+)\)", guide))

    files = (path for path in RECIPES.rglob("*") if path.is_file())
    assert named == {str(path.relative_to(RECIPES)) for path in files}


# -- Slurm --------------------------------------------------------------------------


def test_slurm_job_is_checked_staged_and_reported(
    site: Callable[..., subprocess.CompletedProcess[str]],
    dataset: Dataset,
    tmp_path: Path,
) -> None:
    (tmp_path / "ssd").mkdir()

    done = site(
        "slurm-job.sh", *reading(dataset), **slurm(SLURM_TMPDIR=f"{tmp_path}/ssd")
    )

    assert done.returncode == 0
    assert "does not work" not in done.stdout
    assert "active in 2 of 2 processes" in done.stdout
    assert "Monarch can stage here" in (tmp_path / "monarch-doctor-7.txt").read_text()
    assert len([*tmp_path.glob("monarch-*.json")]) == 1


def test_tasks_of_a_slurm_array_find_the_copies_of_earlier_ones(
    site: Callable[..., subprocess.CompletedProcess[str]],
    dataset: Dataset,
    tmp_path: Path,
) -> None:
    words = ("slurm-array.sh", *reading(dataset))
    given = {"LOCAL": f"{tmp_path}/local"}

    first = site(*words, **slurm(SLURM_ARRAY_TASK_ID="0", **given))
    again = site(*words, **slurm(SLURM_ARRAY_TASK_ID="1", **given, SLURM_JOB_ID="8"))

    assert "--seed 0\n" in first.stdout
    assert "--seed 1\n" in again.stdout
    assert "origin: 0 B read by Monarch" not in first.stdout
    assert "origin: 0 B read by Monarch" in again.stdout


@pytest.mark.parametrize(("status", "queued"), [(85, True), (3, False), (0, False)])
def test_slurm_job_is_requeued_on_request_of_the_program(
    site: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    status: int,
    queued: bool,
) -> None:
    given = slurm(LOCAL=f"{tmp_path}/local", SLURM_RESTART_COUNT="2")

    done = site("slurm-requeue.sh", "sh", "-c", f"exit {status}", **given)

    assert done.returncode == status
    assert ("scontrol requeue 7" in done.stdout) == queued
    assert [path.name[-7:] for path in tmp_path.glob("monarch-*.json")] == ["-2.json"]


@pytest.mark.root
def test_slurm_prolog_makes_a_directory_that_only_the_user_can_use(
    site: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    given = {"LOCAL": str(tmp_path), "SLURM_JOB_USER": "nobody"}

    codes = [site("slurm-prolog.sh", **given).returncode for _ in range(2)]

    found = (tmp_path / "nobody").stat()
    assert (codes, found.st_mode & 0o7777, found.st_uid) == ([0, 0], 0o700, 65534)
    lost = site("slurm-prolog.sh", **given | {"LOCAL": f"{tmp_path}/none"})
    assert lost.returncode == 0
    assert "cannot make" in lost.stdout


@pytest.mark.root
def test_slurm_epilog_removes_the_leftovers_of_a_killed_job(
    site: Callable[..., subprocess.CompletedProcess[str]],
    monarch_command: Path,
    tmp_path: Path,
) -> None:
    dead = tmp_path / "local" / "root" / "monarch-0" / "dead.n1"
    dead.mkdir(mode=0o700, parents=True)
    dead.parent.chmod(0o700)
    (dead / "lock").touch()
    (dead / "ssd").mkdir()
    given = {"LOCAL": f"{tmp_path}/local", "SLURM_JOB_USER": "root"}

    done = site("slurm-epilog.sh", **given, MONARCH=str(monarch_command))
    without = site("slurm-epilog.sh", **given, MONARCH="/none")

    assert (done.returncode, dead.exists()) == (0, False)
    assert f"removed {dead}" in done.stdout
    assert without.returncode == 0
    assert "has failed" in without.stdout


# -- MPI, PBS and containers --------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("HYDRA build details", "-n 1 -ppn 1"),
        ("mpiexec (OpenRTE) 4.1.4", "-n 1 --map-by ppr:1:node"),
    ],
)
def test_pbs_job_starts_one_process_on_each_node(
    site: Callable[..., subprocess.CompletedProcess[str]],
    dataset: Dataset,
    tmp_path: Path,
    version: str,
    words: str,
) -> None:
    nodes = tmp_path / "nodes"
    nodes.write_text("n1\nn1\n")
    given = {"PBS_NODEFILE": str(nodes), "MPI_VERSION": version}

    done = site(
        "pbs-job.sh",
        **given,
        PROGRAM=f"sha256sum {dataset.paths[0]}",
        PBS_O_WORKDIR=".",
    )

    assert f"mpiexec {words} monarch run" in done.stdout
    assert "active in 1 of 1 process" in done.stdout


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("HYDRA build details", "-n 16 -ppn 8 -hosts n1,n2"),
        ("mpiexec (Open MPI) 5.0.5", "-n 16 --host n1:8,n2:8"),
    ],
)
def test_mpi_job_starts_its_ranks_on_the_named_nodes(
    site: Callable[..., subprocess.CompletedProcess[str]],
    dataset: Dataset,
    tmp_path: Path,
    version: str,
    words: str,
) -> None:
    line = ["mpi-job.sh", "n1,n2", "8", *reading(dataset)]

    done = site(*line, MPI_VERSION=version, RENDEZVOUS=str(tmp_path))

    assert f"mpiexec {words} monarch run" in done.stdout
    assert "active in 2 of 2 processes" in done.stdout


def test_container_job_passes_the_output_of_env_to_the_container(
    site: Callable[..., subprocess.CompletedProcess[str]], dataset: Dataset
) -> None:
    done = site(
        "container-job.sh", *reading(dataset), "a b", **slurm(IMAGE="train.sif")
    )

    assert "apptainer exec --nv train.sif sh -c" in done.stdout
    assert f"{dataset.root}\n" in done.stdout
    assert "\na b\n" in done.stdout


# -- packages and modules -----------------------------------------------------------


def project() -> dict[str, Any]:
    text = (ROOT / "pyproject.toml").read_text()
    found: dict[str, Any] = tomllib.loads(text)["project"]
    return found


def needed() -> dict[str, str]:
    """What the project needs at run time: the oldest version of each package."""
    pairs = (text.split(">=") for text in project()["dependencies"])
    return dict(pairs) | {"python": "3.11"}


def test_conda_recipe_has_the_dependencies_of_the_project() -> None:
    recipe = yaml.safe_load((RECIPES / "conda" / "recipe.yaml").read_text())

    assert recipe["context"]["version"] == project()["version"]
    run = (text.split(" >=") for text in recipe["requirements"]["run"])
    assert {name.removeprefix("python-"): old for name, old in run} == needed()


class Package:
    """What `spack.package` gives to a package, as far as the recipe uses it."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = str(prefix)
        self.spec = self

    def __getitem__(self, _name: str) -> "Package":
        return self

    def traverse(self, deptype: str) -> list["Package"]:
        assert deptype == "run"
        return [self]

    @property
    def package(self) -> "Package":
        return self

    purelib = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"

    def command(self, *words: str) -> None:
        subprocess.run([sys.executable, *words], check=True)


@pytest.fixture
def spack(monkeypatch: pytest.MonkeyPatch) -> tuple[type[Package], dict[str, str]]:
    """The package of the recipe, and what it depends on at run time."""
    depends: dict[str, str] = {}

    def depends_on(text: str, type: str | tuple[str, ...]) -> None:
        if "run" in type:
            name, _, version = text.partition("@")
            depends[name.removeprefix("py-")] = version.rstrip(":")

    names = {
        "PythonPackage": Package,
        "depends_on": depends_on,
        "join_path": os.path.join,
        "license": lambda _text: None,
        "run_after": lambda _step: lambda function: function,
        "version": lambda text: depends.update(version=text),
    }
    module = types.ModuleType("spack.package")
    module.__dict__.update(names, __all__=[*names])
    monkeypatch.setitem(sys.modules, "spack", types.ModuleType("spack"))
    monkeypatch.setitem(sys.modules, "spack.package", module)
    inside: dict[str, Any] = {}
    exec(
        compile((RECIPES / "spack" / "package.py").read_text(), "spack", "exec"), inside
    )
    return inside["PyMonarchStaging"], depends


def test_spack_package_has_the_dependencies_of_the_project(
    spack: tuple[type[Package], dict[str, str]],
) -> None:
    _, depends = spack

    assert depends.pop("version") == project()["version"]
    assert depends == needed()


@pytest.mark.slow
def test_spack_package_gives_monarch_a_python_that_finds_its_packages(
    spack: tuple[type[Package], dict[str, str]],
    monarch_command: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The installed project plays all packages that Spack has joined."""
    package = spack[0](Path(sys.prefix))
    variables: dict[str, str] = {}
    monkeypatch.setattr(type(package), "own_python", str(tmp_path / "python"))

    package.make_own_python()  # type: ignore[attr-defined]
    package.setup_run_environment(  # type: ignore[attr-defined]
        types.SimpleNamespace(set=variables.__setitem__)
    )
    done = subprocess.run(
        [monarch_command, "config", "check"],
        env=os.environ | variables | {"PYTHONPATH": "/none"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert variables["MONARCH_STAGING_PYTHON"].startswith(str(tmp_path))
    assert done.stdout.startswith("ok: ")


def test_modulefile_leaves_the_python_of_the_user_first(
    tool: Callable[[str], str], tmp_path: Path
) -> None:
    opt = tmp_path / "monarch"
    opt.mkdir()
    (opt / "site.yaml").touch()
    text = (RECIPES / "modulefile").read_text().replace("/opt/monarch\n", f"{opt}\n")
    assert text.startswith("#%Module")
    script = tmp_path / "module.tcl"
    words = ("module-whatis", "prepend-path", "setenv")
    commands = "".join(f'proc {one} {{args}} {{puts "{one} $args"}}\n' for one in words)
    script.write_text(f"{commands}{text}\nModulesHelp\n")

    done = subprocess.run(
        [tool("tclsh"), script], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[1:] == [
        f"prepend-path PATH {opt}/command",
        f"setenv MONARCH_STAGING_SITE_CONFIG {opt}/site.yaml",
    ]
    assert "monarch run --data" in done.stderr
