"""The figures at the head of a report never claim more than was measured."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.report import ProcessFigures, WaitTotal, render, summarize
from monarch.report.html.verdict import tiles
from support.figures import JOB, MIB, snapshot

RUN = replace(JOB, read_calls_bytes=600 * MIB, startup_s=0.5)
EPOCHS = {
    "opens_hit_tier0": 4000,
    "bytes_hit_tier0": 400 * MIB,
    "opens_miss": 2000,
    "bytes_miss": 200 * MIB,
}
STAGED = {"origin_read_bytes": 200 * MIB, "origin_busy_ns": 2 * 10**9}


def headline(counts=EPOCHS, tally=STAGED, run=RUN, **changes):
    return summarize(snapshot(counts, tally, run=run, **changes))["headline"]


def test_two_hundred_opens_that_read_100_bytes_each_do_not_count_as_whole_files():
    """A program opened a file of 50 MB 200 times, and read 20 kB in all."""
    read = 200 * 100 + 9 * MIB  # the second is read by the start of Python
    run = replace(JOB, bytes=50 * 10**6, files=1, read_calls_bytes=read)
    counts = {"opens_hit_tier0": 200, "bytes_hit_tier0": 200 * 50 * 10**6}
    found = headline(
        counts, {"origin_read_bytes": 50 * 10**6, "origin_busy_ns": 10**9}, run
    )

    assert found["time_saved"]["avoided_bytes"] == 0
    assert found["time_saved"]["seconds"] == 0
    assert found["origin_multiple"] == 1
    text = render(summarize(snapshot(counts, run=run)))
    assert "saved" not in text.partition("\n  source")[0]
    assert "came from" not in text


def test_mapped_reads_are_not_counted_as_reads():
    """An LMDB of 7.8 MB was opened six times and mapped: read calls tell nothing."""
    run = replace(JOB, bytes=7_800_000, files=1, read_calls_bytes=1000)
    counts = {"opens_hit_tier0": 6, "bytes_hit_tier0": 6 * 7_800_000}
    found = headline(counts, {"origin_read_bytes": 7_800_000}, run)

    assert found["time_saved"]["avoided_bytes"] == 0
    assert found["origin_bytes"] == 7_800_000


@pytest.mark.parametrize(
    ("counts", "changes", "unmeasured"),
    [
        (EPOCHS, {}, ""),
        (
            {"opens_origin": 600, "bytes_origin": 60 * MIB},
            {},
            "600 opens by programs (files of 60.0 MiB)",
        ),
        (
            {"opens_origin": 1, "bytes_origin": MIB},
            {"processes": (ProcessFigures("/opt/static", False, 2),)},
            "1 open by programs (files of 1.0 MiB) and 2 processes without Monarch",
        ),
        ({"opens_write": 30}, {}, "30 opens for writing"),
        ({}, {"run": replace(RUN, plain="no room")}, "all that programs read"),
    ],
)
def test_unmeasured_reads_of_the_origin_are_not_reported_as_0(
    counts, changes, unmeasured
):
    report = summarize(snapshot(counts, **changes))

    text = " ".join(render(report).split())
    tile = tiles(report)[1]
    notes = "".join(note if isinstance(note, str) else note.text for note in tile.notes)
    if unmeasured:
        assert f"0 B read by Monarch; plus, not counted: {unmeasured}" in text
        assert tile.label == "read from the origin by Monarch"
        assert notes.endswith(f"plus, not counted: {unmeasured}")
    else:
        assert "not counted" not in text + notes
        assert tile.label == "read from the origin"
    assert tile.figure.text == "0 B"


def test_a_slow_first_pass_in_mid_run_is_not_ready():
    run = replace(JOB, complete=False)
    counts = {"opens_miss": 30, "bytes_miss": 3 * MIB}
    report = summarize(snapshot(counts, {"origin_read_bytes": 3 * MIB}, run=run))

    assert report["headline"]["ready_share"] == 0
    assert "0.0% of 30 opens were ready without waiting" in " ".join(
        render(report).split()
    )
    assert report["run"]["ended_s"] is None


def test_the_time_saved_is_that_of_the_avoided_reads_at_the_rate_of_the_origin():
    waits = (WaitTotal("origin", 16 * 10**9),)
    saved = headline(wait_totals=waits)["time_saved"]

    assert saved["avoided_bytes"] == 400 * MIB
    assert saved["origin_bytes_per_s"] == 100 * MIB
    assert saved["waits_s"] == 4  # of each of 4 processes
    # For 2 s of them the origin was reading data for the first time.
    assert saved["seconds"] == pytest.approx(4 - 2 - 0.5)


def test_nodes_that_read_beside_each_other_have_one_rate_of_the_origin():
    names = ("a", "b")
    saved = headline(nodes=names, tally={**STAGED, "origin_busy_ns": 4 * 10**9})[
        "time_saved"
    ]

    assert saved["origin_bytes_per_s"] == 100 * MIB


@pytest.mark.parametrize(
    ("run", "tally", "reason"),
    [
        (replace(RUN, read_calls_bytes=0), STAGED, "before their reads were sampled"),
        (
            RUN,
            {"origin_read_bytes": 1000, "origin_busy_ns": 10**9},
            "too little was read",
        ),
        (
            RUN,
            {"origin_read_bytes": 9 * MIB, "origin_busy_ns": 10**6},
            "too little was read",
        ),
    ],
)
def test_an_unknown_input_is_named_instead_of_an_estimate(run, tally, reason):
    saved = headline(tally=tally, run=run)["time_saved"]

    assert saved["seconds"] is None
    assert reason in saved["reason"]


def test_bytes_of_the_origin_are_exact_where_reads_are_counted():
    counts = {
        "opens_origin": 3,
        "bytes_origin": 30 * MIB,
        "origin_blocks": 2,
        "bytes_blocks": 20 * MIB,
        "blocks_used": 2,
        "reads_local": 90,
        "bytes_local": 9 * MIB,
        "reads_origin": 10,
        "bytes_read_origin": MIB,
    }
    report = summarize(snapshot(counts, {"origin_read_bytes": 5 * MIB}))

    found = report["headline"]
    assert (found["opens"], found["ready_share"]) == (1, 0)
    assert found["origin_bytes"] == 6 * MIB
    assert found["origin_opened_bytes"] == 10 * MIB
    assert found["origin_multiple"] is None
    assert found["origin_multiple_max"] == pytest.approx(16 / 200)
    text = " ".join(render(report).split())
    assert (
        "0.0% of 1 open was ready without waiting; 2 opens read large files by block; "
        "90.0% of 100 reads of large files came from copies; 6.0 MiB read from the "
        "origin, and 1 open read it directly."
    ) in text
    assert "ready when opened: 0.0% of 1 open, 0.0% by the size of the files" in text
    assert "plus, not counted: 1 open by programs (files of 10.0 MiB)" in text
    assert "unseen" not in text
    assert "1.0 MiB read by programs of large files" in text


LARGE = {
    "opens_origin": 4,
    "bytes_origin": 40,
    "origin_large": 4,
    "origin_blocks": 3,
    "bytes_blocks": 30,
}


@pytest.mark.parametrize(
    ("calls", "unseen", "at_origin", "told"),
    [
        (
            {},
            3,
            3,
            "100.0% of 3 opens of large files; 3 opens read the origin by a stream or "
            "another call that Monarch does not see, or read nothing",
        ),
        (
            {"blocks_used": 3, "reads_local": 9, "blocks_mapped": 1, "maps_local": 2},
            1,
            0,
            "33.3% of 3 opens of large files; 1 open mapped the file, 2 mappings "
            "showed the copy and 0 the origin's file",
        ),
        (
            {"blocks_used": 2, "blocks_mapped": 1, "maps_origin": 4},
            2,
            2,
            "66.7% of 3 opens of large files; 1 open mapped the file, 0 mappings "
            "showed the copy and 4 the origin's file; 1 open read the origin by a "
            "stream",
        ),
        ({"blocks_used": 5, "reads_local": 5}, 0, 0, ""),  # by children, too
    ],
)
def test_the_report_states_the_share_of_unseen_reads(calls, unseen, at_origin, told):
    report = summarize(snapshot(LARGE | calls, {"origin_read_bytes": 7}))

    found, reads = report["headline"], report["reads"]
    assert reads["unseen_opens"] == unseen
    assert reads["unseen_share"] == pytest.approx(unseen / 3)
    assert found["origin_unseen_opens"] == at_origin
    assert found["origin_unseen_bytes"] == (30 if at_origin else 0)
    assert (found["origin_opens"], found["origin_opened_bytes"]) == (1, 10)
    text = " ".join(render(report).split())
    assert f"  unseen reads: {told}".strip() in text if told else "unseen" not in text
    assert (f"{at_origin} opens by unseen reads" in text) == bool(at_origin)
    share = f"{unseen} of them ({100 * unseen / 3:.1f}%) by unseen reads"
    assert (f"3 opens read large files by block, {share}" in text) == bool(unseen)


@pytest.mark.parametrize(("used", "multiple"), [(2, 0.5), (1, None)])
def test_no_multiple_is_claimed_where_the_origin_may_have_been_read_unseen(
    used, multiple
):
    counts = {"opens_origin": 2, "bytes_origin": 20, "origin_blocks": 2}
    counts |= {"bytes_blocks": 20, "blocks_used": used, "reads_local": 100}
    report = summarize(
        snapshot(counts, {"origin_read_bytes": 10}, run=replace(JOB, bytes=20))
    )

    assert report["headline"]["origin_multiple"] == multiple
    assert report["headline"]["origin_multiple_max"] == (0.5 if multiple else 1.5)
    first = " ".join(render(report).partition("\n  source")[0].split())
    told = " (0.50 x the dataset)." if multiple else " and unseen reads."
    assert first.endswith(f"10 B read from the origin{told}")


sizes = st.integers(0, 1 << 50)


@given(*[sizes] * 7, st.integers(0, 10**15))
def test_no_figures_make_a_time_saved_that_cannot_be(
    hit, missed, read, agent, own, local, taken, busy
):
    counts = {
        "bytes_hit_tier0": hit,
        "bytes_miss": missed,
        "bytes_local": local,
        "bytes_read_origin": own,
    }
    run = replace(JOB, read_calls_bytes=taken, bytes=read)
    processes = (ProcessFigures("python", True, 2),)
    saved = headline(
        counts,
        {"origin_read_bytes": agent, "origin_busy_ns": busy},
        run,
        processes=processes,
    )["time_saved"]

    assert 0 <= saved["avoided_bytes"] <= taken
    if saved["seconds"] is not None:
        most = saved["avoided_bytes"] / saved["origin_bytes_per_s"]
        assert 0 <= saved["seconds"] <= most
