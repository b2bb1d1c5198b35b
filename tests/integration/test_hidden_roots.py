"""A root that a private mount hides: inert in the process that sees the mount, served
in all others; what happens to the root itself is seen from behind the mount, too."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.root

Passed = Callable[..., list[str]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A dataset two directories below the hidden or renamed one."""
    root = tmp_path / "top" / "middle" / "data"
    root.mkdir(parents=True)
    for name in ("one", "two"):
        (root / name).write_text(name * 100)
    return root


@pytest.fixture
def passed(monarch_command: Path, run_root: Path, tmp_path: Path) -> Passed:
    """A function that runs a shell script over a dataset, after which another process
    reads it, and gives the roots that pass through then."""
    file = tmp_path / "report.json"

    def run(root: Path, script: str) -> list[str]:
        run: list[str | Path] = [
            monarch_command,
            "run",
            "--data",
            root,
            "--tier",
            f"ram:8MiB:{run_root}",
        ]
        after = f"cat {root}/one >/dev/null || true"
        subprocess.run(
            [*run, "--report", file, "--", "sh", "-ec", f"{script}\n{after}"],
            check=True,
            timeout=60,
        )
        roots: list[str] = json.loads(file.read_text())["passed_roots"]
        return roots

    return run


def hidden(place: Path, *commands: str) -> str:
    """Shell text that runs commands where an empty tmpfs hides a directory."""
    within = "; ".join(["set -e", f"mount -t tmpfs none {place}", *commands])
    return f"unshare -m sh -c '{within}'"


CHANGES = [
    "mv {root} {root}.gone",
    "rm -r {root}; mkdir {root}",
    "chmod 700 {root}; chmod 700 {place}",
    "rm {root}/one; touch {root}/two {root}/three",
    "cd {root}; rm one; mv ../data ../other",
    "mv {place}/middle {place}/other",
]


@pytest.mark.parametrize("change", CHANGES)
def test_root_hidden_by_another_mount_is_inert_in_that_process_only(
    data: Path, passed: Passed, change: str
) -> None:
    place = data.parents[1]
    made = (f"mkdir -p {data}", f"echo other >{data}/one")
    script = hidden(place, *made, change.format(root=data, place=place))

    assert passed(data, script) == []


def test_sandbox_of_bwrap_over_files_without_lasting_inodes_leaves_a_root_served(
    data: Path, passed: Passed, mount_counted, tool
) -> None:
    view = mount_counted(data)
    sandbox = "--bind / / --dev /dev --proc /proc --tmpfs /tmp"

    assert passed(view.root, f"{tool('bwrap')} {sandbox} true") == []


def test_sandbox_that_renames_the_dataset_lets_its_root_pass(
    data: Path, passed: Passed, tool
) -> None:
    sandbox = f"{tool('bwrap')} --bind / / --dev /dev --proc /proc"

    assert passed(data, f"{sandbox} mv {data} {data}.gone") == [str(data)]


def test_rename_above_a_hidden_root_is_seen(data: Path, passed: Passed) -> None:
    top = data.parents[1]

    assert passed(data, hidden(data, f"mv {top} {top}.gone")) == [str(data)]


def test_retargeted_link_to_a_hidden_root_is_seen(
    data: Path, passed: Passed, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(data.parent)
    script = hidden(data, f"rm {link}")

    assert passed(link / "data", script) == [str(data)]
