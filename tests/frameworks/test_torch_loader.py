"""A loader as the dataset of PyTorch's DataLoader, with and without workers."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monarch.errors import UsageError
from monarch.loader import Loader
from support.loaders import is_running, numbered, write_tfrecord
from support.processes import wait_until

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.timeout(600),
    # PyTorch warns of more workers than CPUs, and torchdata of deprecated calls.
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

COUNT = 1009
SMALL: Any = {"group_bytes": 20_000, "groups_in_flight": 4, "remainder": "uneven"}
WORKERS = [0, 1, 2, 4]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    return write_tfrecord(tmp_path / "some.tfrecord", numbered(COUNT))


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    rows = np.arange(COUNT * 6, dtype=np.float32).reshape(COUNT, 2, 3)
    np.save(tmp_path / "some.npy", rows)
    return tmp_path / "some.npy"


def wanted(path: Path, epochs: int, **options: Any) -> list[list[list[int]]]:
    """The Records of all batches of some epochs, as the loader itself yields them."""
    with Loader(path, 32, seed=5, **SMALL, **options) as loader:
        return [[batch.ids.tolist() for batch in loader] for _ in range(epochs)]


def dataset_of(path: Path, **options: Any) -> Any:
    from monarch.integrations.torch import LoaderDataset

    return LoaderDataset(path, 32, seed=5, **{**SMALL, **options})


def loader_of(dataset: Any, workers: int, **options: Any) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(dataset, batch_size=None, num_workers=workers, **options)


def right(batches: Iterator[Any]) -> list[list[int]]:
    """The Records of batches, whose bytes are right."""
    found = []
    for batch in batches:
        for number, record in zip(batch.ids.tolist(), batch.records, strict=True):
            assert int.from_bytes(record[:8], "little") == number
        found.append(batch.ids.tolist())
    return found


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", WORKERS)
def test_batches_come_in_the_order_of_the_loader(
    packed: Path, workers: int, persistent: bool, start: str
) -> None:
    if not workers and (persistent or start == "spawn"):
        pytest.skip("there are no workers")
    dataset = dataset_of(packed)
    more = {} if not workers else {"multiprocessing_context": start}
    loader = loader_of(dataset, workers, persistent_workers=persistent, **more)

    found = [right(loader) for _ in range(3)]

    assert found == wanted(packed, 3)
    dataset.close()


@pytest.mark.parametrize("workers", WORKERS)
def test_a_list_of_batches_is_right(packed: Path, workers: int) -> None:
    dataset = dataset_of(packed)

    assert right(iter(list(loader_of(dataset, workers)))) == wanted(packed, 1)[0]
    dataset.close()


@pytest.mark.parametrize("workers", WORKERS)
def test_a_set_epoch_is_used(packed: Path, workers: int) -> None:
    dataset = dataset_of(packed)
    loader = loader_of(dataset, workers)
    epochs = wanted(packed, 4)

    dataset.set_epoch(3)
    third = right(loader)
    dataset.set_epoch(1)
    first = right(loader)
    second = right(loader)

    assert [first, second, third] == epochs[1:]
    dataset.close()


@pytest.mark.parametrize("workers", WORKERS)
def test_an_interrupted_epoch_begins_the_next_one_or_continues(
    packed: Path, workers: int
) -> None:
    """No batch is yielded twice, and the next epochs are whole."""
    dataset = dataset_of(packed)
    loader = loader_of(dataset, workers)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    del batches

    dataset.set_epoch(1)
    assert right(loader) == wanted(packed, 2)[1]
    dataset.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_records_of_one_type_are_tensors(arrays: Path, workers: int) -> None:
    import torch

    dataset = dataset_of(arrays, output="torch")
    kept = list(loader_of(dataset, workers))  # all of them stay valid
    with Loader(arrays, 32, seed=5, **SMALL) as loader:
        ids = [batch.ids.tolist() for batch in loader]

    for batch, numbers in zip(kept, ids, strict=True):
        if not workers:
            continue
        assert batch.array.dtype == torch.float32
        assert batch.array.shape == (len(numbers), 2, 3)
        assert batch.array[:, 0, 0].tolist() == [6.0 * number for number in numbers]
    dataset.close()


def first_of(batch: Any) -> Any:
    return batch.array[:, 0, 0].clone()


@pytest.mark.parametrize("workers", [0, 2])
def test_collate_runs_in_the_workers(arrays: Path, workers: int) -> None:
    dataset = dataset_of(arrays, output="torch", collate_fn=first_of)

    found = [batch.tolist() for batch in loader_of(dataset, workers)]

    ids = [[6.0 * number for number in batch] for batch in wanted(arrays, 1)[0]]
    assert found == ids
    dataset.close()


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_stateful_loader_resumes_exactly(
    packed: Path, workers: int, persistent: bool
) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    if persistent and not workers:
        pytest.skip("there are no workers")

    def made() -> tuple[Any, Any]:
        dataset = dataset_of(packed)
        return dataset, StatefulDataLoader(
            dataset,
            batch_size=None,
            num_workers=workers,
            persistent_workers=persistent,
        )

    epochs = wanted(packed, 3)
    dataset, loader = made()
    assert right(loader) == epochs[0]
    batches = iter(loader)
    begun = right(next(batches) for _ in range(7))
    state = loader.state_dict()
    del batches
    dataset.close()

    dataset, loader = made()
    loader.load_state_dict(state)
    assert begun + right(loader) == epochs[1]
    assert right(loader) == epochs[2]
    dataset.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_counted_by_the_program_resumes_with_any_number_of_workers(
    packed: Path, workers: int
) -> None:
    epochs = wanted(packed, 2)
    first = dataset_of(packed)
    state = first.state_after(0, 5)
    first.close()

    dataset = dataset_of(packed)
    dataset.load_state_dict(state)
    loader = loader_of(dataset, workers)
    assert right(loader) == epochs[0][5:]
    assert right(loader) == epochs[1]
    dataset.close()


def test_ranks_with_workers_share_the_global_batches(packed: Path) -> None:
    parts = []
    for rank in range(2):
        dataset = dataset_of(packed, rank=rank, world_size=2)
        parts.append(right(loader_of(dataset, 2)))
        dataset.close()

    with Loader(packed, 64, seed=5, **SMALL) as loader:
        whole = [batch.ids.tolist() for batch in loader]
    assert [one + two for one, two in zip(*parts, strict=True)] == whole


def refuse_the_tenth(view: memoryview) -> int:
    number = int.from_bytes(view[:8], "little")
    if number == 10:
        raise ValueError("not an image")
    return number


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_decode_names_the_record(packed: Path, workers: int) -> None:
    dataset = dataset_of(packed, decode=refuse_the_tenth)

    with pytest.raises(Exception, match="record 10: decode: ValueError: not an image"):
        list(chain(*(batch.records for batch in loader_of(dataset, workers))))
    dataset.close()


KILLED = """
import os, signal, sys
from torch.utils.data import DataLoader
from monarch.integrations.torch import LoaderDataset

dataset = LoaderDataset(sys.argv[1], 32, group_bytes=20_000, groups_in_flight=4)
batches = iter(DataLoader(dataset, batch_size=None, num_workers=2))
next(batches)
print(dataset.loader.stats()["reader_pid"], flush=True)
try:
    os.kill(batches._workers[1].pid, signal.SIGKILL)
    list(batches)
except (RuntimeError, ConnectionError) as error:
    print(type(error).__name__, error)
"""


def test_a_killed_worker_is_reported_and_the_reader_ends(packed: Path) -> None:
    """In a program of its own: PyTorch raises the error in a handler of a signal."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", KILLED, str(packed)],
        capture_output=True,
        text=True,
        timeout=60,
    )

    pid, *text = done.stdout.splitlines()
    # The handler may raise it anywhere, or PyTorch may notice the lost worker first.
    said = " ".join([*text, done.stderr])
    assert "DataLoader worker" in said or "ConnectionResetError" in said
    wait_until(lambda: not is_running(int(pid)), "the end of the reader", 20)


def test_invalid_arguments_are_refused(packed: Path) -> None:
    from torch.utils.data import DataLoader

    from monarch.integrations.torch import LoaderDataset

    with pytest.raises(UsageError, match="needs batch_size"):
        LoaderDataset(packed)
    dataset = dataset_of(packed)
    with pytest.raises(UsageError, match="batch_size=None"):
        next(iter(DataLoader(dataset, batch_size=8)))
    dataset.close()
    late = dataset_of(packed, in_order=False)
    with pytest.raises(Exception, match="in_order=False gives batches in one process"):
        next(iter(loader_of(late, 2)))
    late.close()


PROGRAM = """
import sys
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler
from torch.utils.data import BatchSampler, Dataset
from monarch.integrations.torch import HintingSampler
from pathlib import Path

class Files(Dataset):
    def __init__(self, root):
        self.samples = [(str(p), 0) for p in sorted(Path(root).iterdir())]
    def __len__(self):
        return len(self.samples)
    def __getitem__(self, index):
        return len(Path(self.samples[index][0]).read_bytes())

files = Files(sys.argv[1])
sampler = HintingSampler(DistributedSampler(files, 1, 0, seed=3), files)
loader = DataLoader(files, batch_size=4, sampler=sampler, num_workers=2)
assert len(loader) == -(-len(files) // 4)
for epoch in range(2):
    sampler.set_epoch(epoch)
    assert sum(int(sizes.sum()) for sizes in loader) == 1000 * len(files)
batches = HintingSampler(BatchSampler(RandomSampler(files), 4, False), files)
loader = DataLoader(files, batch_sampler=batches)
assert sum(int(sizes.sum()) for sizes in loader) == 1000 * len(files)
"""


def test_a_sampler_announces_the_order_of_files(
    tmp_path: Path, run_root: Path, monarch_command: Path
) -> None:
    root = tmp_path / "files"
    root.mkdir()
    for number in range(40):
        (root / f"{number:03}").write_bytes(bytes(1000))
    report = tmp_path / "report.json"
    words = [sys.executable, "-P", "-c", PROGRAM, str(root)]

    line = [str(monarch_command), "run", "--data", str(root)]
    line += ["--report", str(report), "--set", "fill.enabled=false", "--"]

    done = subprocess.run(
        [*line, *words],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    assert '"hinted_files": 0' not in report.read_text()
    assert '"hinted_files"' in report.read_text()
