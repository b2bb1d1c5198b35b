"""The report of a staging without programs: its content, and when it is complete."""

from dataclasses import replace

import pytest

from monarch.report import (
    ShareFigures,
    Unstaged,
    encode_node_report,
    is_complete,
    merge,
    render_staged,
    summarize,
)
from support.figures import JOB, MIB, node, snapshot

NAMES = ("node0", "node1")
SHARE = ShareFigures(kept_files=10, ready_files=10, ready_bytes=4 * MIB)
RUN = replace(JOB, files=10, bytes=4 * MIB, seconds=1.5)


def alone(**changed):
    return summarize(replace(snapshot({}), run=RUN, **{"share": SHARE, **changed}))


def together(**second):
    parts = [node(number, NAMES, run=RUN, share=SHARE) for number in range(2)]
    parts[1] = replace(parts[1], **second)
    return merge(parts[0], {1: encode_node_report(parts[1])})


def test_the_staging_of_one_node_is_one_line():
    report = alone()

    assert is_complete(report)
    assert render_staged(report).startswith(
        "staged 10 files, 4.0 MiB on this node in 1.5 s: "
    )
    assert render_staged(report).count("\n") == 1


def test_the_staging_of_several_nodes_is_a_line_for_each():
    lines = render_staged(together()).splitlines()

    assert lines[0].startswith("staged 20 copies of 10 files, 4.0 MiB on 2 nodes in ")
    assert lines[1].startswith("  node0: 10 files, 4.0 MiB (")
    assert lines[2].startswith("  node1: 10 files, 4.0 MiB (")
    assert len(lines) == 3


def test_missing_files_of_a_node_are_reported_with_its_name():
    lacking = (Unstaged("no tier had room for them", 1, MIB),)
    report = together(lacking=lacking, failures=("/d/x: Input/output error",))

    assert not is_complete(report)
    lines = render_staged(report).splitlines()
    assert lines[-2:] == [
        "  node1: not staged: 1 file, 1.0 MiB: no tier had room for them",
        "  node1: /d/x: Input/output error",
    ]


@pytest.mark.parametrize(
    ("share", "line"),
    [
        (
            {"unplaced_files": 2, "unplaced_bytes": MIB},
            "  2 files, 1.0 MiB, stay at the origin: no node has room for them",
        ),
        (
            {"partly_held_files": 1, "partly_left_bytes": MIB},
            "  1.0 MiB of 1 file, held in part, stay at the origin: no node has room "
            "for them",
        ),
        (
            {"copies_short": 3},
            "  3 of the copies that the mode asks for have no room",
        ),
    ],
)
def test_files_left_out_by_the_placement_are_reported(share, line):
    report = alone(share=replace(SHARE, **share))

    assert not is_complete(report)
    assert line in render_staged(report).splitlines()


def test_partly_held_files_are_reported_for_each_node_and_for_all():
    parts = replace(SHARE, ready_files=9, part_files=1, part_bytes=MIB)
    report = together(share=parts)

    lines = render_staged(report).splitlines()

    assert not is_complete(report)
    head = "staged 19 copies of 10 files, 4.0 MiB, and 1.0 MiB in parts on 2 nodes in "
    assert lines[0].startswith(head)
    assert lines[1].startswith("  node0: 10 files, 4.0 MiB (")
    assert lines[2].startswith("  node1: 9 files, 4.0 MiB, and 1.0 MiB in parts (")
    assert lines[3:] == [
        "  what is staged in parts is not retained: a later job reads it from the "
        "origin"
    ]


def test_files_without_room_are_counted_once_and_missing_copies_are_added():
    share = replace(
        SHARE,
        unplaced_files=2,
        unplaced_bytes=MIB,
        copies_short=3,
        partly_held_files=1,
        partly_left_bytes=MIB,
    )
    parts = [node(number, NAMES, run=RUN, share=share) for number in range(2)]

    found = merge(parts[0], {1: encode_node_report(parts[1])})["share"]

    assert (found["unplaced_files"], found["copies_short"]) == (2, 6)
    assert (found["partly_held_files"], found["partly_left_bytes"]) == (1, MIB)


def test_a_file_that_changed_after_the_scan_is_named():
    lacking = (Unstaged("changed on the origin, or written to", 1, 5),)
    report = alone(changed=("/d/old",), lacking=lacking)

    assert "  changed after the scan: /d/old" in render_staged(report).splitlines()


def test_a_node_without_a_report_makes_it_incomplete():
    report = merge(node(0, NAMES, run=RUN, share=SHARE), {})

    assert not is_complete(report)
    assert "no report from node1: " in render_staged(report)
