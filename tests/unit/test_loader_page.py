"""Examples of `monarch help loader` run as they are, and all is documented."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import h5py
import lmdb
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from monarch.cli.loader_page import loader_page
from monarch.loader import Loader
from monarch.loader.figures import FIGURES
from monarch.loader.options import Options
from support.loaders import numbered, write_tar, write_tfrecord

PAGE: Final = loader_page()
README: Final = Path(__file__).parents[2] / "README.md"
COUNT: Final = 100
LOADER: Final = "monarch.loader"
OPTIONAL: Final = ("torch", "tensorflow", "jax", "mpi4py")


def blocks(text: str, kind: str) -> list[str]:
    """The examples of a page."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset of each format, by the names that the page uses."""
    root = tmp_path_factory.mktemp("page")
    values = numbered(COUNT)
    with (
        lmdb.open(str(root / "train.lmdb"), map_size=1 << 24) as store,
        store.begin(write=True) as turn,
    ):
        for number, value in enumerate(values):
            turn.put(b"%06d" % number, value)
    for folder in ("shards", "images"):
        (root / folder).mkdir()
    for shard in range(2):
        path = root / "shards" / f"{shard}.tfrecord"
        write_tfrecord(path, values[shard::2])
    write_tar(root / "train.tar", values)
    images = np.arange(96 * 24, dtype=np.float32).reshape(96, 4, 6)
    with h5py.File(root / "train.h5", "w") as file:
        file["images"] = images
    with h5py.File(root / "packed.h5", "w") as file:
        shape = (8, 4, 6)
        file.create_dataset("images", data=images, chunks=shape, compression="gzip")
    np.save(root / "train.npy", np.zeros((COUNT, 5), np.float32))
    table = pyarrow.table({"text": [f"line {n}" for n in range(COUNT)]})
    pyarrow.parquet.write_table(table, root / "train.parquet")
    for number in range(20):
        (root / "images" / f"{number}.png").write_bytes(values[number])
    for example in blocks(PAGE, "python"):
        if example.startswith("# train.py\n"):
            (root / "train.py").write_text(example)
    return root


def run(root: Path, line: list[str], tmp_path: Path) -> str:
    """Run an example in the folder of the datasets."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "PATH": path}
    done = subprocess.run(
        line,
        cwd=root,
        env={**os.environ, **state},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def skip_without(example: str) -> None:
    for name in OPTIONAL:
        if re.search(rf"\b{name}\b", example) and find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", range(len(blocks(PAGE, "python"))))
def test_an_example_runs_as_it_is(made: Path, tmp_path: Path, number: int) -> None:
    example = blocks(PAGE, "python")[number]
    skip_without(example)

    run(made, [sys.executable, "-c", example], tmp_path)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", range(len(blocks(PAGE, "sh"))))
def test_a_command_runs_as_it_is(
    made: Path, tmp_path: Path, run_root: Path, number: int
) -> None:
    command = blocks(PAGE, "sh")[number]
    skip_without(command.replace("torchrun", "torch"))

    said = run(made, ["sh", "-euc", command], tmp_path)

    assert len(said.splitlines()) >= COUNT // 8


def test_the_example_of_readme_runs(made: Path, tmp_path: Path) -> None:
    [example] = [
        text for text in blocks(README.read_text(), "python") if LOADER in text
    ]
    text = example.replace("/pfs/train.lmdb", "train.lmdb").replace("256", "8")
    text = f"step = len\n{text}"

    run(made, [sys.executable, "-c", text], tmp_path)


def test_all_arguments_and_figures_are_documented(made: Path) -> None:
    with Loader(made / "train.npy", 10) as loader:
        list(loader)
        found = loader.stats()

    assert set(found) == set(FIGURES)
    for name in [*FIGURES, *(field.name for field in fields(Options))]:
        assert f"- `{name}`" in PAGE, name


def test_each_format_has_an_example() -> None:
    examples = "\n".join(blocks(PAGE, "python"))
    for name in ("lmdb", "*.tfrecord", "tar", "h5::", "npy", "parquet::", "images"):
        assert f"{name}" in examples


def test_lines_fit_a_terminal() -> None:
    assert max(map(len, PAGE.splitlines())) <= 88
