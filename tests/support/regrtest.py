"""CPython's own test suites, run plain or under Monarch, with each test's result."""

import os
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from support.programs import Outcome, Runner, finish, stage, start

SUITES = (
    *(
        "test_os",
        "test_posix",
        "test_io",
        "test_fileio",
        "test_bufio",
        "test_largefile",
    ),
    *("test_mmap", "test_fcntl", "test_stat", "test_tempfile", "test_subprocess"),
    *("test_glob", "test_pathlib", "test_genericpath", "test_posixpath"),
    *("test_shutil", "test_tarfile", "test_zipfile", "test_gzip"),
)
SUITE_TIMEOUT_S = 900
# Of one suite; regrtest dumps its threads.
STUCK_S = 300


@dataclass(frozen=True, slots=True)
class Results:
    """How often each test of the suites had which result."""

    status: int
    tests: Mapping[str, Counter[str]]
    text: str = field(repr=False)

    @property
    def count(self) -> int:
        """The number of tests that ran."""
        return sum(counts.total() for counts in self.tests.values())

    def differences(self, other: "Results") -> list[str]:
        """One line per test that had another result in the other run."""
        names = sorted(self.tests.keys() | other.tests.keys())
        pairs = [(n, self.tests.get(n), other.tests.get(n)) for n in names]
        return [f"{n}: {one} against {two}" for n, one, two in pairs if one != two]

    def without(self, names: set[str]) -> "Results":
        """The same without some tests."""
        kept = {name: seen for name, seen in self.tests.items() if name not in names}
        return replace(self, tests=kept)

    def unstable(self, other: "Results") -> set[str]:
        """Tests that two runs of the same kind disagree about."""
        names = self.tests.keys() | other.tests.keys()
        return {n for n in names if self.tests.get(n) != other.tests.get(n)}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that carries its own tests."""

    program: Path
    suites: Path

    def words(self, folder: Path, suites: tuple[str, ...]) -> list[str]:
        """The command that runs suites with their files below a directory."""
        words = [str(self.program), "-m", "test", "-j2", "--timeout", str(STUCK_S)]
        words += ["--tempdir", str(folder), "--junit-xml", str(folder / "results.xml")]
        return [*words, *suites]


def find_interpreter() -> Interpreter | None:
    """The Python below this virtual environment, or None if it has no tests."""
    program = Path(sys.base_prefix) / "bin" / "python3"
    script = "import test.test_os, test.libregrtest as t; print(t.__path__[0])"
    found = subprocess.run(
        [program, "-c", script], capture_output=True, text=True, check=False
    )
    if found.returncode:
        return None
    return Interpreter(program, Path(found.stdout.strip()).parent)


def run_plain(python: Interpreter, folder: Path) -> Results:
    """Runs all suites without Monarch."""
    environment = {"TMPDIR": str(folder)}
    words = python.words(folder, SUITES)
    return results(finish(start(words, environment), SUITE_TIMEOUT_S), folder)


def run_under_monarch(
    python: Interpreter, folder: Path, runner: Runner, roots: list[Path]
) -> tuple[Results, int]:
    """Stages the suites' own files, then runs all suites under Monarch.

    Also returns the number of redirected opens of the suites themselves.
    """
    script = f'{stage(python.suites)} >"$0" && exec "$@"'
    staged = folder / "staged"
    outcome = runner.under_monarch(
        ["sh", "-c", script, str(staged), *python.words(folder, SUITES)],
        roots=roots,
        timeout=SUITE_TIMEOUT_S,
        environment={"TMPDIR": os.fspath(folder)},
    )
    opens = outcome.redirected_opens - int(staged.read_text().split()[1])
    return results(outcome, folder), opens


def results(outcome: Outcome, folder: Path) -> Results:
    """Reads the results that regrtest has written for each test."""
    text = (outcome.stdout + outcome.stderr).decode(errors="replace")
    file = folder / "results.xml"
    assert file.exists(), text
    tests: dict[str, Counter[str]] = {}
    for case in xml.parse(file).iter("testcase"):
        kinds = sorted({child.tag for child in case} - {"system-out", "system-err"})
        result = "+".join(kinds) or "passed"
        tests.setdefault(case.attrib["name"], Counter())[result] += 1
    return Results(outcome.status, tests, text)
