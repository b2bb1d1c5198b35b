"""Files behind links to directories outside are staged once a program uses one."""

import numpy as np
import numpy.typing as npt

from monarch.native import ReplicaState
from monarch.stager.behind import LOOK_S, NOTHING_BEHIND, Behind

GROUPS = np.array([1, 0, 2, 1, 0, 2], np.int32)
ALL = np.arange(6, dtype=np.uint32)


class Scene:
    """Six Files, of which two links lead to two each, and their states."""

    def __init__(self) -> None:
        self.now_s = 10.0
        self.states = np.zeros(6, np.uint32)
        self.behind = Behind(GROUPS, ["one", "two"], lambda: self.now_s)

    def in_state(self, state: ReplicaState) -> npt.NDArray[np.bool_]:
        """Which Files are in a state."""
        found: npt.NDArray[np.bool_] = self.states == state
        return found

    def look(self) -> bool:
        """Looks for opened Files, after the time that looks are apart."""
        self.now_s += LOOK_S
        return self.behind.note_opened(self.in_state)

    def order(self) -> list[int]:
        """The files that fill may stage."""
        return [int(file) for file in self.behind.order(ALL)]


def test_fill_begins_with_the_files_of_the_datasets_alone() -> None:
    scene = Scene()

    assert not scene.look()
    assert scene.order() == [1, 4]


def test_a_file_of_the_dataset_opens_no_link() -> None:
    scene = Scene()
    scene.states[1] = ReplicaState.READY

    assert not scene.look()
    assert scene.order() == [1, 4]


def test_files_behind_a_link_follow_once_one_of_them_was_requested() -> None:
    scene = Scene()
    scene.states[2] = ReplicaState.STAGING

    assert scene.look()
    assert scene.order() == [1, 4, 2, 5]
    assert not scene.look()
    scene.states[0] = ReplicaState.READY
    assert scene.look()
    assert scene.order() == [1, 4, 0, 2, 3, 5]


def test_checks_are_a_second_apart() -> None:
    scene = Scene()
    scene.look()
    scene.states[2] = ReplicaState.STAGING
    scene.now_s += LOOK_S / 2

    assert not scene.behind.note_opened(scene.in_state)
    assert scene.look()


def test_before_a_job_everything_is_staged() -> None:
    scene = Scene()
    scene.behind.open_all()

    assert scene.order() == [1, 4, 0, 2, 3, 5]


def test_without_links_the_order_is_the_one_given() -> None:
    assert NOTHING_BEHIND.order(ALL[::-1]).tolist() == [5, 4, 3, 2, 1, 0]
