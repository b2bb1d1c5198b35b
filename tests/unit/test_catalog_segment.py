"""The segments of a job: each offset, number and spelling where the Shim expects it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from monarch import native
from monarch.catalog.build import build_block
from monarch.catalog.inventory import Inventory, MappedRoot
from monarch.catalog.segment import (
    BYTES_PER_FILE,
    CatalogPlan,
    OpenPolicy,
    TierPlace,
    plan_catalog,
)
from monarch.catalog.survey import PATH_BYTES_MAX
from monarch.errors import UsageError
from support.surveys import flat_block, flat_survey

POLICY_AUTO = OpenPolicy(0, 8 << 20, 1)
POLICY = OpenPolicy(1, 8 << 20, 30_000_000_000, ("bash", "sh"))


def root_at(
    path: bytes, *spellings: bytes, sizes: tuple[int, ...] = (1,)
) -> MappedRoot:
    """A mapped root with files of these sizes."""
    return MappedRoot(path, spellings, flat_block(list(sizes), root_ino=sum(path)))


def plan_of(*roots: MappedRoot) -> CatalogPlan:
    """A plan with one Tier."""
    return plan_catalog(roots, [TierPlace(1, b"/local/job", 77)], POLICY)


def header(memory: np.ndarray, name: str) -> Any:
    """A segment's own struct."""
    dtype = native.DTYPES[name]
    return memory[: dtype.itemsize].view(dtype)[0]


def written(plan: CatalogPlan) -> np.ndarray:
    """The catalog segment of a plan."""
    memory = np.zeros(plan.length, np.uint8)
    plan.write_into(memory, 9)
    return memory


def text_at(memory: np.ndarray, reference: int) -> bytes:
    """The string that a reference names."""
    start = int(header(memory, "catalog")["strings"]) + (int(reference) >> 16)
    return memory[start : start + (int(reference) & 0xFFFF)].tobytes()


def test_the_catalog_marks_provisional_roots() -> None:
    roots = [root_at(b"/pfs/one"), replace(root_at(b"/pfs/two"), provisional=True)]

    records = header(written(plan_of(*roots)), "catalog")["roots"]

    assert records["provisional"][:2].tolist() == [0, 1]


def test_the_catalog_holds_the_places_of_all_its_parts() -> None:
    one = root_at(b"/pfs/one", b"/scratch/one", sizes=(1, 2, 3))
    two = root_at(b"/pfs/two", sizes=(4, 5))
    plan = plan_of(one, two)

    memory = written(plan)

    catalog = header(memory, "catalog")
    seg = catalog["seg"]
    assert seg["magic"] == b"MONARCH"
    assert seg["length"] == len(memory)
    assert seg["generation"] == 9
    assert (catalog["file_count"], catalog["dir_count"]) == (5, 2)
    assert catalog["roots"]["file_base"][:2].tolist() == [0, 3]
    # Directories are marked behind all Files.
    assert catalog["roots"]["dir_base"][:2].tolist() == [5, 6]
    for number, root in enumerate((one, two)):
        record = catalog["roots"][number]
        start = int(record["block"])
        stored = memory[start : start + len(root.block.memory)]
        assert native.index_find(stored, b"00000001") == 2
        assert text_at(memory, record["path"]) == root.path
        assert record["ino"] == root.block.header["root_ino"]
    states = memory[plan.places.states : plan.places.states + 4 * 5]
    assert not states.any()


def test_the_policy_and_the_tiers_reach_the_shim() -> None:
    catalog = header(written(plan_of(root_at(b"/pfs/one"))), "catalog")

    assert catalog["cold_mode"] == 1
    assert catalog["cold_wait_max_bytes"] == 8 << 20
    assert catalog["cold_timeout_ns"] == 30_000_000_000
    assert catalog["filter_count"] == 2
    assert catalog["filter"][:3].tolist() == [b"bash", b"sh", b""]
    assert catalog["tier_count"] == 1
    tier = catalog["tiers"][0]
    assert (tier["dev"], tier["kind"], tier["path_bytes"]) == (77, 1, 10)
    assert tier["path"] == b"/local/job"


def test_prefixes_are_normal_unique_and_longest_first() -> None:
    root = root_at(b"/pfs/one", b"/pfs/one", b"/a//b/./c/../d/", b"//x")
    plan = plan_of(root, root_at(b"/pfs/other/two"))
    memory = written(plan)

    catalog = header(memory, "catalog")
    dtype = native.DTYPES["prefix"]
    start, count = int(catalog["prefixes"]), int(catalog["prefix_count"])
    prefixes = memory[start : start + count * dtype.itemsize].view(dtype)
    assert [(text_at(memory, p["path"]), int(p["root"])) for p in prefixes] == [
        (b"/pfs/other/two", 1),
        (b"/pfs/one", 0),
        (b"/a/b/d", 0),
        (b"/x", 0),
    ]


@pytest.mark.parametrize(
    ("roots", "message"),
    [
        ([(b"/a",), (b"/a",)], "duplicate dataset"),
        ([(b"/a",), (b"/a/b",)], "is inside"),
        ([(b"/a/b",), (b"/a-c",), (b"/a",)], "is inside"),
        ([(b"/a", b"/x"), (b"/b", b"/x")], "name of two datasets"),
        ([(b"/a", b"x")], "absolute"),
        ([(b"/a", b"/")], "use a subdirectory of /"),
        ([(b"/%d" % number,) for number in range(65)], "the limit is 64"),
    ],
)
def test_datasets_that_contradict_each_other_are_refused(
    roots: list[tuple[bytes, ...]], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        plan_of(*(root_at(*spellings) for spellings in roots))


def test_a_sibling_whose_name_begins_alike_is_not_inside() -> None:
    assert plan_of(root_at(b"/a/b"), root_at(b"/a/bc")).file_count == 2


@pytest.mark.parametrize(
    ("tiers", "names", "message"),
    [
        ([TierPlace(0, b"/t", 1)] * 9, (), "the limit is 8"),
        ([TierPlace(0, b"/" + b"t" * 191, 1)], (), "too long"),
        ([], ("n" * 32,), "too long"),
        ([], tuple(map(str, range(33))), "the limit is 32"),
    ],
)
def test_tiers_and_names_that_do_not_fit_the_layout_are_refused(
    tiers: list[TierPlace], names: tuple[str, ...], message: str
) -> None:
    policy = OpenPolicy(0, 0, 0, names)

    with pytest.raises(UsageError, match=message):
        plan_catalog([root_at(b"/a")], tiers, policy)


def test_the_digest_changes_with_any_root() -> None:
    digests = {
        int(header(written(plan_of(root_at(b"/a", sizes=sizes))), "catalog")["digest"])
        for sizes in ((1,), (2,), (1, 1))
    }

    assert len(digests) == 3


def test_flags_and_inodes_have_room_for_every_file() -> None:
    plan = plan_of(root_at(b"/a", sizes=(1,) * 5000), root_at(b"/b"))
    flags = np.zeros(plan.flags_length, np.uint8)
    inodes = np.zeros(plan.inodes_length, np.uint8)

    plan.write_flags(flags, 3)
    plan.write_inodes(inodes, 3)

    marks = plan.file_count + plan.directory_count
    assert header(flags, "flags")["count"] == marks == 5003
    opened = int(header(flags, "flags")["opened"])
    assert opened == native.DTYPES["flags"].itemsize + marks
    checked = int(header(flags, "flags")["checked"])
    assert checked % 4 == 0
    assert checked >= opened + plan.file_count
    assert len(flags) == checked + 4 * plan.directory_count
    slots = int(header(inodes, "inodes")["slot_count"])
    assert slots > plan.file_count
    assert len(inodes) == native.DTYPES["inodes"].itemsize + 16 * slots
    assert header(inodes, "inodes")["seg"]["kind"] == native.SegmentKind.INODES
    assert header(flags, "flags")["seg"]["kind"] == native.SegmentKind.FLAGS


@pytest.mark.parametrize("path_bytes", [20, 46, 60])
def test_a_file_with_a_path_of_60_bytes_costs_at_most_176_bytes(
    path_bytes: int,
) -> None:
    files = 100_000
    block = flat_block([1] * files, name_bytes=path_bytes)

    plan = plan_of(MappedRoot(b"/pfs/imagenet", (), block))

    total = plan.length + plan.flags_length + plan.inodes_length
    header_bytes = native.DTYPES["catalog"].itemsize
    assert total - header_bytes <= BYTES_PER_FILE * files
    assert plan.inode_slots >= files * 13 // 12


def test_a_path_that_is_listed_twice_is_refused() -> None:
    survey = flat_survey([b"a", b"a"], [1, 2])

    with pytest.raises(FileExistsError):
        build_block(survey)


def test_one_inode_number_on_two_devices_is_two_files() -> None:
    survey = flat_survey([b"a", b"b", b"c"], [1, 2, 1])
    other = np.array([(0o100644, 0, 0, 1, 43, 4096, 1)], survey.attrs.dtype)
    survey = replace(survey, attrs=np.concatenate([survey.attrs, other]))
    survey.listings[0].rows["ino"] = 7
    survey.listings[0].rows["attr"] = [1, 2, 1]

    block = build_block(survey)

    assert block.entries["file"].tolist() == [0, 0, 1, 0]
    assert block.first_entry.tolist() == [1, 2]


def test_the_longest_path_is_what_the_layout_allows() -> None:
    assert native.CONSTANTS["PATH_BYTES_MAX"] - 1 == PATH_BYTES_MAX


def test_the_inventory_knows_every_file_by_its_number() -> None:
    roots = [
        root_at(b"/pfs/one", sizes=(0, 7)),
        MappedRoot(b"/pfs/empty", (), flat_block([])),
        root_at(b"/pfs/two", sizes=(8 << 20, (8 << 20) + 1)),
    ]

    files = Inventory(roots, 8 << 20)

    assert len(files) == 4
    assert files.sizes.tolist() == [0, 7, 8 << 20, (8 << 20) + 1]
    assert files.total_bytes == sum(files.sizes.tolist())
    assert files.extent_first.tolist() == [0, 1, 2, 3, 5]
    assert [files.root_of(n) for n in range(4)] == [0, 0, 2, 2]
    assert files.path(1) == b"/pfs/one/00000001"
    assert files.path(2) == b"/pfs/two/00000000"
    for chosen in ([0, 1, 2, 3], [1, 3], [2], []):
        found = list(files.relatives(np.array(chosen, np.int64)))
        assert found == [files.relative(n) for n in chosen]
    with pytest.raises(IndexError):
        files.path(4)
    with pytest.raises(IndexError):
        files.path(-1)


def test_an_inventory_of_nothing_is_empty() -> None:
    files = Inventory([], 8 << 20)

    assert (len(files), files.total_bytes, files.extent_first.tolist()) == (0, 0, [0])


@pytest.mark.parametrize(
    ("mode", "size", "expected"),
    [
        (native.ColdMode.AUTO, 8 << 20, False),
        (native.ColdMode.AUTO, (8 << 20) + 1, True),
        (native.ColdMode.WAIT, (8 << 20) + 1, False),
        (native.ColdMode.THROUGH, (8 << 20) + 1, False),
    ],
)
def test_there_are_flags_of_whole_files_where_large_ones_may_be_waited_for(
    mode: native.ColdMode, size: int, expected: bool
) -> None:
    policy = OpenPolicy(mode, 8 << 20, 1)
    roots = [root_at(b"/pfs/one"), root_at(b"/pfs/two", sizes=(1, size))]

    plan = plan_catalog(roots, [], policy)

    behind = plan.presence.end
    assert plan.whole_place == (behind if expected else 0)
    assert plan.checked_place >= behind + (plan.file_count if expected else 0)
    assert plan.flags_length == plan.checked_place + 4 * plan.directory_count
    memory = np.zeros(plan.flags_length, np.uint8)
    plan.write_flags(memory, 3)
    assert header(memory, "flags")["whole"] == plan.whole_place


def test_the_pages_of_large_files_are_read_where_the_plan_has_put_them() -> None:
    block = native.CONSTANTS["BLOCK_BYTES"]
    page = native.CONSTANTS["PAGE_BYTES"]
    sizes = (8 << 20, 1, (16 << 20) + block + 7, (8 << 20) + 9)
    plan = plan_catalog([root_at(b"/pfs/one", sizes=sizes)], [], POLICY_AUTO)
    memory = np.zeros(plan.flags_length, np.uint8)
    plan.write_flags(memory, 3)

    pages = plan.presence.pages(memory)
    place = int(plan.presence.start)
    words = int(
        memory[place:]
        .view(np.uint8)[: native.DTYPES["presence"].itemsize]
        .view(native.DTYPES["presence"])["words"][0]
    )
    held = memory[words : words + 5 * 256].view(np.uint64).reshape(5, 32)
    held[0, 0] = 0b101
    held[1, :] = 2**64 - 1
    held[2, 1] = 1
    held[4, 0] = 1

    assert pages.files.tolist() == [2, 3]
    lengths = np.array(sizes, np.uint64)
    assert pages.sizes(lengths).tolist() == [2 * page, 8 << 20, 7, 0, 9]
