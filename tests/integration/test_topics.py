"""The examples of documents and topics run as they are, in the order of the page."""

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from support.documents import PAGES, ROOT, Example, examples
from support.stand_ins import path_with_stand_ins

Play = Callable[[Example], str]
# Their examples have their own tests, with a dataset of each format and servers.
OWN_TESTS = {"loader.md", "stores.md"}
DOCUMENTS = {
    **{path.name: path for path in sorted(PAGES.glob("*.md"))},
    "README.md": ROOT / "README.md",
    "configs": ROOT / "configs" / "README.md",
}
WITH_EXAMPLES = [
    name
    for name, path in DOCUMENTS.items()
    if name not in OWN_TESTS and examples(path.read_text())
]
JOB = "tiers: [{name: ram, kind: ram, capacity: 64MiB}]\n"
READ_ALL = """
import glob
for path in glob.glob("pfs/imagenet/*"):
    with open(path, "rb") as file:
        file.read()
print("trained")
"""


@pytest.fixture
def site(tmp_path: Path, run_root: Path) -> Path:
    """A folder with the files that examples name; `/pfs` and `/local` are below it."""
    for folder in ("pfs/imagenet", "pfs/volumes", "pfs/me/env/bin", "local"):
        (tmp_path / folder).mkdir(parents=True)
    for number in range(8):
        (tmp_path / f"pfs/imagenet/{number}.jpg").write_bytes(os.urandom(5_000))
        (tmp_path / f"pfs/volumes/{number}.npy").write_bytes(bytes(5_000))
    with tarfile.open(tmp_path / "pfs/images.tar", "w") as archive:
        archive.add(tmp_path / "pfs/imagenet", "images")
    (tmp_path / "pfs/me/env/lib").mkdir()
    (tmp_path / "pfs/me/env/bin/python").symlink_to(sys.executable)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "train.py").write_text(READ_ALL)
    for name in ("job.yaml", "tiers.yaml"):
        (tmp_path / name).write_text(f"datasets: [{{path: pfs/imagenet}}]\n{JOB}")
    return tmp_path


@pytest.fixture
def play(site: Path, monarch_command: Path) -> Play:
    """A function that runs an example, which has to succeed."""
    environ = os.environ | {
        "PATH": path_with_stand_ins(site, monarch_command),
        "XDG_STATE_HOME": str(site / "state"),
        "TMPDIR": str(site / "local"),
        "DATASET": str(site / "pfs/imagenet"),
        "MONARCH_STAGING_NODE": "node0",
        "MONARCH_STAGING_PEERS__JOIN_TIMEOUT": "100ms",
    }

    def run(example: Example) -> str:
        done = subprocess.run(
            command(example, site),
            cwd=site,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=100,
        )
        assert done.returncode == 0, f"{example.text}\n{done.stdout}"
        return done.stdout

    return run


def command(example: Example, site: Path) -> list[str]:
    """The command that runs an example with the paths of this machine."""
    text = example.text.replace("/pfs", f"{site}/pfs").replace(
        "/local", f"{site}/local"
    )
    if example.language == "yaml":
        given = "" if "datasets:" in text else "datasets: [{path: pfs/imagenet}]\n"
        (site / "example.yaml").write_text(given + text)
        return ["monarch", "config", "check", "-c", "example.yaml"]
    if example.language == "python":
        words = [sys.executable, "-c", text]
    else:
        words = ["sh", "-euc", text.replace("GiB", "MiB")]
    if example.in_job:
        return ["monarch", "run", "-q", "--strict", "-c", "job.yaml", "--", *words]
    return words


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_run_as_they_are(play: Play, name: str) -> None:
    for example in examples(DOCUMENTS[name].read_text()):
        if example.language != "text" and "monarch.loader" not in example.text:
            play(example)


def test_programs_in_containers_run_under_the_shim(play: Play) -> None:
    shown = [play(one) for one in examples(DOCUMENTS["containers.md"].read_text())]

    assert len(shown) == 3
    for text in shown:
        assert re.search("trained|(docker|bwrap) .*shim.so", text), text


def test_the_package_carries_all_topics() -> None:
    carried = {path.name for path in (files("monarch") / "pages").iterdir()}

    assert {path.name for path in PAGES.iterdir() if path.is_file()} <= carried
