"""Fixtures of the tests that run whole programs plain and under Monarch."""

from pathlib import Path

import pytest

from support import readers
from support.programs import Runner
from support.richtree import make_rich_tree


@pytest.fixture
def runner(monarch_command: Path, run_root: Path, tmp_path: Path) -> Runner:
    """Runs programs plain and under the installed Monarch."""
    return Runner(monarch_command, tmp_path)


@pytest.fixture
def rich_tree(tmp_path: Path) -> Path:
    """A dataset root with a bit of everything that a tree can hold."""
    root = tmp_path / "rich" / "tree"
    root.mkdir(parents=True)
    return make_rich_tree(root)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the compiled consumers, or a skip with what is missing."""
    if lack := readers.missing():
        pytest.skip(lack)
    return readers.build_programs(tmp_path_factory.mktemp("programs"))
