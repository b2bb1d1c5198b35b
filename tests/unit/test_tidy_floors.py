"""The floors of the data plane: files rest on those of their own and of lower floors.

Arrows are includes and calls; calls by function pointers are not seen: an upper part
registers them, and they are documented where they are declared.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.sourcetree import called, included, native_c, offences
from unit.test_tidy_sizes import RATCHET

pytestmark = pytest.mark.usefixtures("at_the_root")

FLOORS = ["base", "media", "extents", "sources", "transfers", "demand", "peers", "api"]
DATAPLANE = Path("monarch/native/dataplane")
FOLDER_FILES_MAX = 40
# Function pointers by which a lower part calls a higher one.
CALLS_UP_MAX = 10


def floor(path: Path) -> int:
    """The number of the floor of a file of the data plane."""
    return FLOORS.index(path.relative_to(DATAPLANE).parts[0])


def arrows() -> Iterator[tuple[Path, Path, str]]:
    """All pairs of files of which the first includes or calls the second."""
    for path in native_c():
        yield from ((path, there, "includes it") for there in included(path))
    for path, calls in called().items():
        for name, places in calls.items():
            yield from ((path, there, f"calls {name}()") for there in places)


def goes_up(source: Path, target: Path) -> bool:
    """An arrow leads to a higher floor."""
    inside = DATAPLANE in source.parents and DATAPLANE in target.parents
    return inside and floor(target) > floor(source)


def test_each_file_of_the_data_plane_is_on_a_floor() -> None:
    own = [
        path for path in native_c("*.c", "*.h", "*.def") if DATAPLANE in path.parents
    ]

    astray = [str(path) for path in own if path.parent.name not in FLOORS]

    assert len(own) > len(FLOORS)
    assert not astray, offences(f"The floors are {', '.join(FLOORS)}", astray)


def test_no_file_of_the_data_plane_needs_a_higher_floor() -> None:
    wrong = [
        f"{source}: {how}: {target}"
        for source, target, how in arrows()
        if goes_up(source, target)
    ]

    assert not wrong, offences("Calls and includes point down", wrong)


def test_an_arrow_to_a_higher_floor_is_seen() -> None:
    low, high = DATAPLANE / "base/ring.c", DATAPLANE / "api/engine.h"

    assert goes_up(low, high)
    assert not goes_up(high, low)
    assert any(
        source.parent.name != target.parent.name for source, target, _ in arrows()
    )


def test_few_calls_up_are_registered() -> None:
    """Pointers to functions in the structs by which parts are composed."""
    pointer = re.compile(r"^    \w+ \(\*(\w+)\)\(.*\bof\b", re.MULTILINE)
    headers = [path for path in native_c("*.h") if DATAPLANE in path.parents]

    found = [name for path in headers for name in pointer.findall(path.read_text())]

    assert 0 < len(found) <= CALLS_UP_MAX, found


def test_nothing_but_its_own_folder_knows_what_an_engine_is_made_of() -> None:
    wrong = [
        str(path)
        for path in native_c()
        if DATAPLANE / "api" not in path.parents
        if re.search(r"\bstruct engine\b", path.read_text())
    ]

    assert not wrong, offences("struct engine is private to api/", wrong)


def folders() -> Counter[Path]:
    """How many files each folder of the native part has."""
    return Counter(path.parent for path in native_c("*.c", "*.h", "*.def"))


def test_no_folder_has_more_files_than_can_be_overlooked() -> None:
    known = json.loads(RATCHET.read_text())["large_folders"]

    large = {
        str(folder): count
        for folder, count in folders().items()
        if count > known.get(str(folder), FOLDER_FILES_MAX)
    }

    assert not large, offences(
        f"At most {FOLDER_FILES_MAX} files",
        [f"{folder}: {count}" for folder, count in large.items()],
    )
