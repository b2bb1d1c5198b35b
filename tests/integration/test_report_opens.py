"""Random trees of links and random opens: the report agrees with strace."""

import json
import os
import random
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.programs import Outcome, Runner, consumer, finish, start

OPENS = 60
FLAGS = (
    *(os.O_RDONLY,) * 6,
    os.O_RDONLY | os.O_NOFOLLOW,
    os.O_RDONLY | os.O_CREAT,
    os.O_RDONLY | os.O_APPEND,
    os.O_WRONLY,
)
# The result of an open as `strace -y` prints it: the descriptor, and its path.
CALL = re.compile(
    r'open(?:at|at2)?\((?:(?:AT_FDCWD|\d+)<(?P<at>[^>]*)>, )?"(?P<path>[^"]*)", '
    r"(?P<flags>[A-Z_|0-9]+).*\) = \d+<(?P<leads>[^>]*)>"
)


@dataclass(slots=True)
class Trees:
    """Two roots and a directory outside of them, all with links to one another."""

    chance: random.Random
    folder: Path
    directories: list[Path] = field(default_factory=list)
    names: list[Path] = field(default_factory=list)

    @property
    def roots(self) -> list[Path]:
        """The datasets."""
        return [self.folder / "one", self.folder / "two"]

    @property
    def far(self) -> Path:
        """The directory outside."""
        return self.folder / "far"

    def grow(self) -> None:
        """Makes directories, files, and links of all kinds to any of these."""
        self.directories = [*self.roots, self.far]
        for directory in self.directories:
            directory.mkdir()
        self.names = list(self.directories)
        for number in range(self.chance.randrange(20, 45)):
            path = self.chance.choice(self.directories) / f"n{number}"
            kind = self.chance.choice(["directory", "file", "file", "link", "link"])
            if kind == "directory":
                path.mkdir()
                self.directories.append(path)
            elif kind == "file":
                path.write_bytes(b"%d" % number * self.chance.randrange(1, 900))
            else:
                path.symlink_to(self.goal(path))
            self.names.append(path)

    def goal(self, link: Path) -> str:
        """What a link names: mostly something that is there."""
        goal = self.chance.choice([*self.names, *self.names, self.folder / "nothing"])
        if self.chance.random() < 0.5:
            return str(goal)
        return os.path.relpath(goal, link.parent)

    def opens(self) -> list[tuple[str, str | None, str, int]]:
        """What the program opens: names, names below links, and ways around."""
        return [self.one_open() for _ in range(OPENS)]

    def one_open(self) -> tuple[str, str | None, str, int]:
        """A line for open_each.py."""
        path = self.chance.choice(self.names)
        for _ in range(3):
            path = self.deeper(path)
        flags = self.chance.choice(FLAGS)
        way = self.chance.random()
        if way < 0.5:
            return str(self.folder), None, str(path), flags
        # A directory outside is in the dataset if one of its links points there.
        inner = [one for one in self.directories if not one.is_relative_to(self.far)]
        real = [one for one in inner if path.is_relative_to(one)]
        if way < 0.7 or not real:
            near = os.path.relpath(path, self.roots[0])
            return str(self.roots[0]), None, near, flags
        directory = self.chance.choice(real)
        near = os.path.relpath(path, directory)
        if way < 0.85:
            return str(self.folder), str(directory), near, flags
        return str(directory), None, f"./{near}", flags

    def deeper(self, path: Path) -> Path:
        """A name in what the path leads to, with its dots, or the path itself."""
        try:
            names = sorted(os.listdir(path))
        except OSError:
            return path
        if names and self.chance.random() < 0.8:
            return path / self.chance.choice(names)
        # Elsewhere ".." after a link may enter a root by another way than its text.
        inner = any(path.is_relative_to(root) for root in self.roots)
        return Path(f"{path}/..") if inner and self.chance.random() < 0.2 else path


def begins_below(path: str, roots: list[str]) -> bool:
    """Whether a path, as it is given, begins below a root, and does not go up again.

    Where ".." follows a link or an unknown name below a root, it begins there: the text
    does not say where it leads.
    """
    at = ""
    for name in path.split("/"):
        if name == "..":
            real = os.path.isdir(at) and not os.path.islink(at)
            if not real and is_below(at, roots):
                return True
            at = os.path.dirname(at if real else os.path.realpath(at))
        elif name not in ("", "."):
            at = f"{at}/{name}"
    return is_below(at, roots)


def is_below(path: str, roots: list[str]) -> bool:
    """Whether the text of a path is that of a name below a root."""
    return any(path.startswith(f"{root}/") for root in roots)


def traced(words: list[str], log: Path) -> list[str]:
    """The words of a program whose opens strace writes down."""
    calls = "trace=open,openat,openat2"
    return ["strace", "-f", "-y", "-s", "4096", "-e", calls, "-o", str(log), *words]


def expected_opens(log: Path, roots: list[Path]) -> int:
    """How many read-only opens of regular files below the roots a trace has."""
    return sum(
        "O_RDONLY" in call["flags"]
        and "O_PATH" not in call["flags"]
        and os.path.isfile(call["leads"])
        and begins_below(
            os.path.join(call["at"] or "/", call["path"]), [str(root) for root in roots]
        )
        for call in CALL.finditer(log.read_text())
    )


def run_both(
    trees: Trees, runner: Runner, tmp_path: Path, options: list[str]
) -> tuple[int, Outcome]:
    """The opens that strace counts in a plain run, and the run under Monarch."""
    lines = tmp_path / "opens.jsonl"
    text = "\n".join(json.dumps(one) for one in trees.opens())
    lines.write_text(text)
    words = consumer("open_each.py", str(lines))
    plain = tmp_path / "plain"
    shutil.copytree(trees.folder, plain / "trees", symlinks=True)
    log = tmp_path / "plain.log"
    finish(start(traced(words, log))).succeed()
    expected = expected_opens(log, trees.roots)
    # The plain run may have created files: Monarch saw the trees without them.
    for made in set(trees.folder.rglob("*")) - {
        trees.folder / one.relative_to(plain / "trees")
        for one in (plain / "trees").rglob("*")
    }:
        made.unlink()
    outcome = runner.under_monarch(words, roots=trees.roots, options=options)
    return expected, outcome.succeed()


@pytest.mark.parametrize("links", ["follow", "inside"])
def test_the_report_counts_the_opens_that_a_tracer_counts(
    runner: Runner,
    tmp_path: Path,
    tool: Callable[[str], str],
    soak_count: Callable[[int, int], int],
    links: str,
) -> None:
    tool("strace")
    for seed in range(soak_count(4, 150)):
        folder = tmp_path / f"{links}{seed}"
        (folder / "trees").mkdir(parents=True)
        trees = Trees(random.Random(f"{links} {seed}"), folder / "trees")
        trees.grow()
        options = [
            word
            for number in range(2)
            for word in ("--set", f"datasets.{number}.links={links}")
        ]

        expected, outcome = run_both(trees, runner, folder, options)

        report = outcome.report
        found, hits, sources = report["headline"], report["hits"], report["sources"]
        opens = {row["kind"]: 0 for row in sources}
        for row in sources:
            opens[row["kind"]] += row["opens"]
        caused = sum(
            row["opens"]
            for row in report["fallbacks"]
            if row["cause"].startswith("origin_")
        )
        assert found["opens"] == expected, (seed, report["fallbacks"], opens)
        assert hits["opens"] == expected, seed
        assert hits["by_opens"] == found["ready_share"], seed
        assert caused == opens["origin"], (seed, report["fallbacks"])


def main() -> None:
    """Shows the trees and opens of a seed: test_report_opens.py LINKS SEED FOLDER."""
    folder = Path(sys.argv[3])
    trees = Trees(random.Random(f"{sys.argv[1]} {sys.argv[2]}"), folder)
    trees.grow()
    for one in trees.opens():
        print(json.dumps(one))


if __name__ == "__main__":
    main()
