"""A virtual environment as a dataset: its packages come from staged copies."""

import importlib.util
import os
import py_compile
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.clusters import Cluster
from support.commands import Command
from support.countfs import CountFs
from support.programs import Outcome, Runner

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
    # What the scan and the launcher ask for is no more than one process asks for.
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
    compiled = sorted((packages_of(environment) / "many").glob("__pycache__/*.pyc"))
    assert len(compiled) == MODULES + 1
    for path in compiled:
        source = Path(importlib.util.source_from_cache(str(path)))
        assert path.read_bytes() == compiled_of(source, tmp_path / "one.pyc"), path
    assert not first.report["passed_roots"]
    # What the first job wrote was not there at its scan; for the next it is staged.
    assert first.counter("origin_new") > 0
    assert again.counter("opens_origin") == 0


def compiled_of(source: Path, place: Path) -> bytes:
    """What Python writes for a module."""
    py_compile.compile(str(source), cfile=str(place), doraise=True)
    return place.read_bytes()


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


def test_nodes_share_an_environment(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(2, files=1)
    make_environment(cluster.origin.source / "environment")
    environment = cluster.origin.root / "environment"
    cluster = replace(cluster, linked=environment)
    report = cluster.folder / "report.json"
    options = ["--tier", f"ram:256MiB:{cluster.ram}", "--report", str(report)]
    line = cluster.line(options, cluster.nodes)

    running = []
    for node in cluster.nodes:
        node.run_root.mkdir(mode=0o700, parents=True)
        words = [*node.prefix, *line, "sh", "-c", at_once(environment)]
        running.append(Command.start(words, cluster.folder / node.name, node.environ))
    ended = [command.end() for command in running]

    for one in ended:
        assert one.status == 0, one.stderr
        check_imports(one.stdout, environment, PROCESSES)
    staged_bytes = sum(
        path.stat().st_size
        for path in environment.rglob("*")
        if path.is_file() and os.path.realpath(path).startswith(str(environment))
    )
    staged_bytes += (environment / "bin" / "python").stat().st_size
    assert cluster.origin.counts().read_bytes <= OVERREAD_MAX * staged_bytes
