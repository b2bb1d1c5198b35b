"""Listing a dataset costs the origin at most one request per directory."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import listing_programs
from support.countfs import CountFs
from support.listing_programs import PROGRAMS
from support.programs import Runner

Mount = Callable[..., CountFs]
FOLDERS, FILES = 12, 40
REQUESTS = ("opens", "stats", "listings", "xattrs")


@pytest.fixture
def view(mount_counted: Mount, tmp_path: Path) -> CountFs:
    """A dataset whose client keeps names and metadata, without extended attributes."""
    listing_programs.make_tree(tmp_path / "source", FOLDERS, FILES)
    return mount_counted(tmp_path / "source", keep_ms=60_000, aged=1, no_xattrs=1)


def results(runner: Runner, view: CountFs, *, plain: bool = False) -> dict[str, Any]:
    """The results of the programs under Monarch."""
    out = runner.folder / "results.json"
    words = [sys.executable, listing_programs.__file__, str(view.root), str(out)]
    if plain:
        runner.plain(words).succeed()
    else:
        options = ["--set", "fill.enabled=false"]
        runner.under_monarch(words, roots=[view.root], options=options).succeed()
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_programs_that_list_cost_one_request_a_directory(
    runner: Runner, view: CountFs
) -> None:
    served = results(runner, view)
    direct = results(runner, view, plain=True)

    for name in PROGRAMS:
        asked = {what: served[name]["asked"][what] for what in REQUESTS}
        assert served[name]["out"] == direct[name]["out"], name
        assert asked["listings"] == asked["opens"] == 0, (name, asked)
        assert asked["xattrs"] <= 1, name  # the kernel then knows that none exist
        assert sum(asked.values()) <= 1 + FOLDERS, (name, asked)
        assert direct[name]["asked"]["listings"] == 1 + FOLDERS, name


def test_extended_attributes_are_requested_only_where_they_may_exist(
    runner: Runner, mount_counted: Mount, tmp_path: Path
) -> None:
    """Nothing but a request for each name tells that it has none."""
    listing_programs.make_tree(tmp_path / "source", FOLDERS, FILES)
    view = mount_counted(tmp_path / "source", keep_ms=60_000, aged=1)

    served = results(runner, view)["ls -lR"]["asked"]

    assert served["xattrs"] >= FOLDERS * FILES
    assert served["listings"] == 0


def test_a_server_that_ignores_case_is_asked_for_missing_names(
    runner: Runner, mount_counted: Mount, tmp_path: Path
) -> None:
    listing_programs.make_tree(tmp_path / "source", 1, 3)
    view = mount_counted(tmp_path / "source", keep_ms=60_000, aged=1, fold=1)
    script = (
        "import os, sys\n"
        "print(os.path.exists(sys.argv[1] + '/class000/IMAGE00001.JPG'),\n"
        "      os.path.exists(sys.argv[1] + '/class000/other'))\n"
    )

    outcome = runner.under_monarch(
        [sys.executable, "-c", script, view.root], roots=[view.root]
    )

    assert outcome.stdout == b"True False\n"
    assert outcome.counter("absent_answered") == 0
