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
    # The suites create files below one dataset root and read those of another.
    folders = [dataset.root / name for name in ("plain", "monarch", "again")]
    for place in folders:
        place.mkdir()
    roots: list[Path] = [dataset.root, python.suites]

    plain = run_plain(python, folders[0])
    results, redirected = run_under_monarch(python, folders[1], runner, roots)

    assert plain.count > TESTS_MIN
    if results.differences(plain):
        # Some tests depend on timing, even without Monarch: two plain runs find them.
        loose = plain.unstable(run_plain(python, folders[2]))
        results, plain = results.without(loose), plain.without(loose)
    assert results.differences(plain) == [], results.text
    assert results.status == plain.status
    assert redirected > 0
