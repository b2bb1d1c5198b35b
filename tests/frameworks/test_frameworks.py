"""Frameworks read the same under Monarch, also from a zeroed origin."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.countfs import CountFs
from support.programs import Runner, consumer
from support.replica_reads import gate, run_zeroed

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(1800)]

OVERREAD_MAX = 1.02
# Framework, arguments of its consumer, and the consumers that create its dataset.
READS = {
    "numpy": ("numpy_arrays.py", "read", ["numpy_arrays.py"]),
    "h5py": ("hdf5_groups.py", "read", ["hdf5_groups.py"]),
    "mapped formats": ("mapped_formats.py", "read", ["mapped_formats.py"]),
    "Pillow": ("pillow_images.py", "read", ["pillow_images.py"]),
    "PyTorch fork": (
        "torch_loader.py",
        "fork",
        ["pillow_images.py", "torch_loader.py"],
    ),
    "PyTorch spawn": (
        "torch_loader.py",
        "spawn",
        ["pillow_images.py", "torch_loader.py"],
    ),
    "tf.data": ("tensorflow_records.py", "read", ["tensorflow_records.py"]),
}


@dataclass(frozen=True, slots=True)
class Framework:
    """A consumer with its dataset made."""

    root: Path
    words: list[str]


@pytest.fixture(params=READS)
def framework(
    request: pytest.FixtureRequest, runner: Runner, tmp_path: Path
) -> Framework:
    """Each framework in turn, with a dataset of its own."""
    script, verb, makers = READS[request.param]
    root = tmp_path / "dataset"
    for maker in makers:
        runner.plain(consumer(maker, "make", root)).succeed()
    return Framework(root, consumer(script, verb, root))


def test_a_framework_reads_the_same(framework: Framework, runner: Runner) -> None:
    plain = runner.plain(framework.words).succeed()

    outcome = runner.under_monarch(framework.words, roots=[framework.root])

    # The stderr of TensorFlow contains times.
    assert outcome.words[:2] == plain.words[:2]
    assert outcome.redirected_opens > 0


def test_a_framework_reads_right_bytes_from_a_zeroed_origin(
    framework: Framework, runner: Runner
) -> None:
    right = runner.plain(framework.words).succeed()

    outcome = run_zeroed(runner, framework.root, framework.words)

    fooled = runner.plain(framework.words)
    assert outcome.stdout == right.stdout
    assert fooled.stdout != right.stdout


def test_a_framework_opens_no_staged_file_at_its_origin(
    framework: Framework, runner: Runner, tool
) -> None:
    tool("strace")

    assert gate(runner, framework.root, framework.words) == []


def test_mapped_formats_read_the_origin_once(
    runner: Runner, mount_counted: Callable[..., CountFs], tmp_path: Path
) -> None:
    """Also what is read first, without fill: their opens or mappings wait."""
    root = tmp_path / "dataset"
    runner.plain(consumer("mapped_formats.py", "make", root)).succeed()
    view = mount_counted(root, cached=1)
    line = consumer("mapped_formats.py", "read", view.root)
    plain = runner.plain(line).succeed()
    size_bytes = sum(path.stat().st_size for path in root.rglob("*.*"))
    view.reset()

    outcome = runner.under_monarch(
        ["sh", "-c", 'for epoch in 1 2; do "$@"; done', "sh", *line],
        roots=[view.root],
        options=["--set", "fill.enabled=false"],
    )

    assert outcome.stdout == 2 * plain.stdout
    mapped = outcome.counter("blocks_mapped")
    assert mapped == outcome.counter("opens_origin") == outcome.counter("maps_local")
    assert outcome.counter("maps_origin") == 0
    assert view.counts().read_bytes <= OVERREAD_MAX * size_bytes
