"""The floors of the native parts: files rest on those of their own and of lower floors.

Arrows are includes and calls; calls by function pointers are not seen: an upper part
registers them, and they are documented where they are declared.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.sourcetree import called, included, native_c, offences

pytestmark = pytest.mark.usefixtures("at_the_root")

NATIVE = Path("monarch/native")
DATAPLANE = NATIVE / "dataplane"
FLOORS = {
    "dataplane": (
        *("base", "media", "extents", "sources", "transfers", "demand", "peers"),
        "api",
    ),
    "shim": ("base", "names", "serving", "hooks"),
}
FOLDER_FILES_MAX = 40
TRANSFER_FIELDS_MAX = 20
# Function pointers by which a lower part calls a higher one.
CALLS_UP_MAX = 10


def floor(path: Path) -> tuple[str, int] | None:
    """Part and floor of a file, if its part has floors; -1: it is on none of them."""
    part, folder = path.relative_to(NATIVE).parts[:2]
    if part not in FLOORS:
        return None
    floors = FLOORS[part]
    return part, floors.index(folder) if folder in floors else -1


def arrows() -> Iterator[tuple[Path, Path, str]]:
    """All pairs of files of which the first includes or calls the second."""
    for path in native_c():
        yield from ((path, there, "includes it") for there in included(path))
    for path, calls in called().items():
        for name, places in calls.items():
            yield from ((path, there, f"calls {name}()") for there in places)


def goes_up(source: Path, target: Path) -> bool:
    """An arrow leads to a higher floor of the same part."""
    low, high = floor(source), floor(target)
    return bool(low and high and low[0] == high[0] and low[1] < high[1])


def test_each_file_of_a_part_with_floors_is_on_one() -> None:
    floors = {path: floor(path) for path in native_c("*.c", "*.h", "*.def")}

    astray = [str(path) for path, found in floors.items() if found and found[1] < 0]

    assert len([found for found in floors.values() if found]) > 100
    assert not astray, offences(f"The floors are {FLOORS}", astray)


def test_no_file_needs_a_higher_floor() -> None:
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
    """All function pointers in structs, but for those of libraries that are loaded."""
    pointer = re.compile(r"^    \w[\w ]*[ *]\(\*(\w+)\)\(", re.MULTILINE)
    headers = [
        path
        for path in native_c("*.h")
        if DATAPLANE in path.parents and path.name != "codec_libraries.h"
    ]

    found = [name for path in headers for name in pointer.findall(path.read_text())]

    assert {"judge", "thread_body", "push"} <= set(found)
    assert len(found) <= CALLS_UP_MAX, found


def test_the_struct_of_an_engine_is_private_to_its_folder() -> None:
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
    large = [
        f"{folder}: {count}"
        for folder, count in folders().items()
        if count > FOLDER_FILES_MAX
    ]

    assert not large, offences(f"At most {FOLDER_FILES_MAX} files", large)


def test_a_transfer_has_few_fields_whatever_its_source() -> None:
    text = (DATAPLANE / "transfers/transfer.h").read_text()
    body = text.split("\nstruct transfer {\n")[1].split("\n};")[0]

    fields = re.findall(r"\b(\w+)[;,]", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL))

    assert {"order", "route", "state", "completion"} <= set(fields)
    assert len(fields) <= TRANSFER_FIELDS_MAX, fields
