"""The lists of tests that do or do not run with packed Tiers name existing tests."""

import re
from pathlib import Path

import pytest

from support.tier_codecs import (
    IN_BOTH_MODES,
    PLAIN_ONLY,
    is_listed,
    reason_for_plain,
)

TESTS = Path(__file__).parents[1]
LISTED = [*IN_BOTH_MODES, *(name for names in PLAIN_ONLY.values() for name in names)]


@pytest.mark.parametrize("name", LISTED)
def test_listed_test_exists(name: str) -> None:
    file, _, function = name.partition("::")
    text = (TESTS / file).read_text()

    assert re.search(rf"(?m)^def {function.partition('[')[0] or 'test_'}", text)


def test_name_of_a_test_stands_for_its_parameters() -> None:
    names = ["a/test_b.py::test_c", "a/test_d.py::test_e[one]", "a/test_f.py"]

    for nodeid in (
        *("a/test_b.py::test_c", "a/test_b.py::test_c[x]"),
        *("tests/a/test_d.py::test_e[one]", "tests/a/test_f.py::test_g"),
    ):
        assert is_listed(nodeid, names)
    for nodeid in ("a/test_b.py::test_cd", "a/test_d.py::test_e[two]"):
        assert not is_listed(nodeid, names)


def test_reason_is_given_for_tests_of_plain_tiers_alone() -> None:
    assert reason_for_plain("tests/semantics/test_fine_print_places.py::test_noexec")
    assert reason_for_plain(
        "tests/semantics/test_fine_print_places.py::test_noexec[zstd:1]"
    )
    assert not reason_for_plain("tests/semantics/test_semantics.py::test_write")
