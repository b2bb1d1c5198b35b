"""A virtual environment as a dataset: its packages are read from staged copies."""

import importlib.util
import json
import py_compile
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.clusters import Cluster
from support.commands import Command
from support.countfs import CountFs
from support.programs import Outcome, Runner

Report = Mapping[str, Any]

MODULES, PROCESSES = 200, 4
SUM = sum(range(MODULES))
OVERREAD_MAX = 1.02
ANSWERED_MIN = 0.95
SETTLED_S = 2.5
"""A directory that changed just before the scan does not tell which names it lacks."""
IMPORT_ALL = f"""
import importlib, os, sys
modules = [importlib.import_module(f"many.part{{n}}") for n in range({MODULES})]
words = sum(module.VALUE for module in modules), sys.prefix, modules[0].__file__
os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # in one piece
"""


def make_environment(folder: Path) -> Path:
    """A virtual environment with a package of many modules; its Python is a link."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    assert (folder / "bin" / "python").is_symlink()
    package = packages_of(folder) / "many"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for number in range(MODULES):
        (package / f"part{number}.py").write_text(f"VALUE = {number}\n")
    return folder


def packages_of(environment: Path) -> Path:
    """Where packages are installed."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return environment / "lib" / version / "site-packages"


def imports(environment: Path, script: str = IMPORT_ALL) -> str:
    """A shell command: the environment's Python runs a script."""
    python = environment / "bin" / "python"
    return f"{shlex.quote(str(python))} -c {shlex.quote(script)}"


def at_once(environment: Path) -> str:
    """A shell command: several processes import all modules at the same time."""
    return " & ".join([imports(environment)] * PROCESSES) + " & wait"


def check_imports(words: bytes | str, environment: Path, count: int) -> None:
    """Each process has imported all modules, by the names of the environment."""
    text = words if isinstance(words, str) else words.decode()
    first = packages_of(environment) / "many" / "part0.py"
    assert text.splitlines() == [f"{SUM} {environment} {first}"] * count


@pytest.fixture
def counted(mount_counted: Callable[..., CountFs], tmp_path: Path) -> CountFs:
    """An environment on an origin that counts requests."""
    make_environment(tmp_path / "source")
    time.sleep(SETTLED_S)
    return mount_counted(tmp_path / "source")


def run(runner: Runner, environment: Path, line: str, **more: str) -> Outcome:
    """Runs a shell command under Monarch, the environment its dataset."""
    words = ["sh", "-c", line]
    roots = [environment]
    return runner.under_monarch(words, roots=roots, environment=more).succeed()


def test_processes_import_from_staged_copies(runner: Runner, counted: CountFs) -> None:
    environment = counted.root
    plain = runner.plain(["sh", "-c", imports(environment)]).succeed()
    check_imports(plain.stdout, environment, 1)
    stats = counted.counts().stats
    counted.reset()

    outcome = run(
        runner, environment, f"{at_once(environment)}; {at_once(environment)}"
    )

    check_imports(outcome.stdout, environment, 2 * PROCESSES)
    report, counts = outcome.report, counted.counts()
    assert outcome.counter("opens_origin") == 0
    assert report["headline"]["opens"] >= 2 * PROCESSES * (MODULES + 1)
    assert counts.read_bytes <= OVERREAD_MAX * report["run"]["bytes"]
    assert report["metadata"]["ratio"] >= ANSWERED_MIN
    # The scan and the launcher request no more than one process does.
    assert counts.stats <= stats


def test_compiled_modules_written_during_the_job_are_right(
    runner: Runner, tmp_path: Path
) -> None:
    environment = make_environment(tmp_path / "environment")
    writes = {"PYTHONDONTWRITEBYTECODE": ""}

    first = run(
        runner, environment, f"{at_once(environment)}; {imports(environment)}", **writes
    )
    again = run(runner, environment, imports(environment), **writes)

    check_imports(first.stdout, environment, PROCESSES + 1)
    check_imports(again.stdout, environment, 1)
    check_compiled(environment, tmp_path / "one.pyc")
    assert not first.report["passed_roots"]
    # Files written by the first job were missing at its scan; the next job stages them.
    assert first.counter("origin_new") > 0
    assert again.counter("opens_origin") == 0


def check_compiled(environment: Path, place: Path) -> None:
    """Each module has the `.pyc` that Python writes for it, here again at a place."""
    compiled = sorted((packages_of(environment) / "many").glob("__pycache__/*.pyc"))
    assert len(compiled) == MODULES + 1
    for path in compiled:
        source = importlib.util.source_from_cache(str(path))
        py_compile.compile(source, cfile=str(place), doraise=True)
        assert path.read_bytes() == place.read_bytes(), path


def test_module_that_is_rewritten_during_the_job_is_imported_anew(
    runner: Runner, tmp_path: Path
) -> None:
    environment = make_environment(tmp_path / "environment")
    module = packages_of(environment) / "many" / "part7.py"
    one = "import many.part7 as m; print(m.VALUE)"
    change = f"echo 'VALUE = 1234567' > {shlex.quote(str(module))}"
    line = f"{imports(environment, one)}; {change}; {imports(environment, one)}"

    for writes in ("", "1"):
        outcome = run(runner, environment, line, PYTHONDONTWRITEBYTECODE=writes)

        assert outcome.stdout.split()[-1] == b"1234567"


def run_on_nodes(cluster: Cluster, line: str, **more: str) -> tuple[list[str], Report]:
    """Runs a shell command on each node; returns their output and the report."""
    place = cluster.folder / "report.json"
    options = ["--tier", f"ram:256MiB:{cluster.ram}", "--report", str(place)]
    words = [*cluster.line(options, cluster.nodes), "sh", "-c", line]
    running = []
    for node in cluster.nodes:
        node.run_root.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder, environ = cluster.folder / node.name, {**node.environ, **more}
        running.append(Command.start([*node.prefix, *words], folder, environ))
    ended = [command.end() for command in running]
    assert [one.status for one in ended] == [0, 0], ended
    return [one.stdout for one in ended], json.loads(place.read_text())


def test_nodes_share_an_environment(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(2, files=1)
    make_environment(cluster.origin.source / "environment")
    time.sleep(SETTLED_S)
    environment = cluster.origin.root / "environment"
    cluster = replace(cluster, linked=environment)

    printed, report = run_on_nodes(cluster, at_once(environment))

    for words in printed:
        check_imports(words, environment, PROCESSES)
    assert report["counters"]["opens_origin"] == 0
    assert report["headline"]["opens"] >= 2 * PROCESSES * (MODULES + 1)
    assert report["metadata"]["ratio"] >= ANSWERED_MIN
    read_bytes = cluster.origin.counts().read_bytes
    assert read_bytes <= OVERREAD_MAX * report["run"]["bytes"]


def test_nodes_write_compiled_modules_into_a_shared_environment(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster(2, files=1)
    # The counted origin is read-only.
    environment = make_environment(tmp_path / "environment")
    cluster = replace(cluster, linked=environment)
    line = f"{at_once(environment)}; {imports(environment)}"
    writes = {"PYTHONDONTWRITEBYTECODE": ""}

    printed, first = run_on_nodes(cluster, line, **writes)
    printed_again, again = run_on_nodes(cluster, line, **writes)

    for words in (*printed, *printed_again):
        check_imports(words, environment, PROCESSES + 1)
    check_compiled(environment, tmp_path / "one.pyc")
    assert not first["passed_roots"]
    assert first["counters"]["origin_new"] > 0
    assert again["counters"]["opens_origin"] == 0
