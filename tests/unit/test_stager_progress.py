"""The progress and the rate of staging."""

import numpy as np
import pytest

from monarch.native import Reason
from monarch.placement import Node
from monarch.stager import Event, Progress, ProgressMeter, Rates
from support.placements import EXTENT_BYTES, place_sizes
from support.stages import FILL, PAGE, make_stage


@pytest.fixture
def meter():
    return ProgressMeter()


def test_staged_files_count_and_the_others_may_follow(tmp_path, meter):
    stage = make_stage(tmp_path, [PAGE, 2 * PAGE, 3 * PAGE], settings=FILL)
    stage.stager.start()
    assert meter.measure(stage.stager) == Progress(0, 0, 3, 6 * PAGE, 6 * PAGE)

    stage.end(1)

    found = meter.measure(stage.stager)
    assert found == Progress(1, 2 * PAGE, 3, 6 * PAGE, 4 * PAGE)
    assert found.share == pytest.approx(1 / 3)


def test_files_without_room_are_not_expected(tmp_path, meter):
    stage = make_stage(tmp_path, [PAGE] * 10, (4 * PAGE,), FILL)

    before = meter.measure(stage.stager)
    stage.stager.start()
    for file in range(4):
        stage.end(file)

    assert before.coming_bytes == 4 * PAGE  # as much as fits
    assert meter.measure(stage.stager) == Progress(4, 4 * PAGE, 10, 10 * PAGE, 0)


def test_changed_files_are_not_expected(tmp_path, meter):
    stage = make_stage(tmp_path, [PAGE] * 3)
    stage.replicas.change(2, Event.REFUSED, reason=Reason.CHANGED)

    assert meter.measure(stage.stager).coming_bytes == 2 * PAGE


def test_a_node_of_several_keeps_its_share(tmp_path, meter):
    sizes = [*[PAGE] * 6, 9 * EXTENT_BYTES]
    stage = make_stage(tmp_path, sizes, (100 * EXTENT_BYTES,), FILL)
    assert meter.measure(stage.stager).kept_files == 7
    nodes = [Node(name, 10 * EXTENT_BYTES) for name in ("n0", "n1")]
    placement = place_sizes(nodes, np.array(sizes, np.uint64))

    stage.join(placement, 0)

    kept = placement.kept(0)
    whole, extents = int(kept[:6].sum()), int(kept[6:].sum())
    found = meter.measure(stage.stager)
    assert 0 < extents < 9
    assert found.kept_files == whole + 1
    assert found.kept_bytes == whole * PAGE + extents * EXTENT_BYTES


def test_an_empty_share_has_no_percentage():
    assert Progress().share is None


def test_a_rate_is_that_of_the_last_seconds():
    rates = Rates(window_s=10)
    assert rates.per_s() == {}

    for second in range(30):
        assert rates.is_due(float(second))
        rates.note(float(second), {"bytes": 100.0 * max(0, second - 24)})

    assert not rates.is_due(29.5)
    assert rates.per_s() == {"bytes": 50.0}  # 500 in the last 10 s
    assert rates.left_s("bytes", 100) == 2.0
    assert rates.left_s("bytes", 0) == 0.0


def test_without_a_rate_the_time_left_is_unknown():
    rates = Rates()
    assert rates.left_s("bytes", 5) is None

    rates.note(0.0, {"bytes": 7.0})
    rates.note(1.0, {"bytes": 5.0})  # evicted

    assert rates.per_s() == {"bytes": 0.0}
    assert rates.left_s("bytes", 5) is None
