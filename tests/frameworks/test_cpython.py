"""CPython's own tests give the same results with and without Monarch."""

from pathlib import Path

import pytest

from support.dataset import Dataset
from support.programs import Runner
from support.regrtest import find_interpreter, run_plain, run_under_monarch

TESTS_MIN = 3000


@pytest.mark.frameworks
@pytest.mark.timeout(2400)
def test_cpythons_own_tests_give_the_same_results(
    runner: Runner, dataset: Dataset
) -> None:
    python = find_interpreter()
    if python is None:
        pytest.skip("this Python was installed without its own tests")
    # The suites make their files below one dataset root and read those of another.
    plain_folder, folder = dataset.root / "plain", dataset.root / "monarch"
    for place in (plain_folder, folder):
        place.mkdir()
    roots: list[Path] = [dataset.root, python.suites]

    plain = run_plain(python, plain_folder)
    results, redirected = run_under_monarch(python, folder, runner, roots)

    assert plain.count > TESTS_MIN
    assert results.differences(plain) == [], results.text
    assert results.status == plain.status
    assert redirected > 0
