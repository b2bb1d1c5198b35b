"""The origin is read once, however many processes and epochs read the dataset."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.countfs import CountFs
from support.dataset import make_dataset
from support.programs import Runner, consumer

FILES = 2000
READERS, EPOCHS = 4, 3
OVERREAD_MAX = 1.02
REPORT_TOLERANCE = 0.01


@pytest.mark.timeout(300)
def test_the_origin_is_read_once_by_four_processes_in_three_epochs(
    runner: Runner, mount_counted: Callable[..., CountFs], tmp_path: Path
) -> None:
    dataset = make_dataset(tmp_path / "dataset", files=FILES, large=0)
    view = mount_counted(dataset.root)
    words = consumer("python_epochs.py", view.root, str(READERS), str(EPOCHS))
    plain = runner.plain(words).succeed()
    plain_bytes = view.counts().read_bytes
    view.reset()

    outcome = runner.under_monarch(words, roots=[view.root])

    counts = view.counts()
    assert outcome.words == plain.words
    assert plain_bytes == READERS * EPOCHS * dataset.size_bytes
    assert dataset.size_bytes <= counts.read_bytes
    assert counts.read_bytes <= OVERREAD_MAX * dataset.size_bytes
    assert outcome.origin_bytes == pytest.approx(counts.read_bytes, REPORT_TOLERANCE)
    assert outcome.redirected_opens == READERS * EPOCHS * FILES
