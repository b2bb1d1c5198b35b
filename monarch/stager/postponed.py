"""Files whose Transfers are postponed because of a temporary obstacle.

The origin of a root may hang, or the node may be out of descriptors or memory. That is
no fault of the File: programs read the origin meanwhile, and staging is retried.
"""

from collections.abc import Callable
from typing import Final

from monarch.native import Reason
from monarch.stager.capacity import InARow
from monarch.stager.replicas import Event, Replicas

PROBE_S: Final = 1.0
"""The interval of trials with one File of a root that does not answer."""
AGAIN_S: Final = 0.5
"""The first pause before a failed copy is retried; each further pause is doubled."""
AGAIN_MAX_S: Final = 30.0


class Postponed:
    """Tracks postponed Files, and when to retry them.

    Args:
        clock: monotonic seconds.
    """

    def __init__(
        self,
        replicas: Replicas,
        clock: Callable[[], float],
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._stalled = 0
        self._refused: dict[int, int] = {}
        self._probes: dict[int, tuple[int, float]] = {}
        self._due_s: dict[int, float] = {}
        self._tries = InARow()

    def __repr__(self) -> str:
        stalled = self._stalled
        return f"<Postponed {len(self._due_s)} files, roots {stalled:#x} stalled>"

    @property
    def wake_s(self) -> float | None:
        """The time until the next check of postponed Files; None: none is needed."""
        if self._due_s:
            return AGAIN_S
        return PROBE_S if self._refused else None

    # -- roots that do not answer -------------------------------------------------

    def note_stalled(self, stalled: int) -> bool:
        """Note the roots that do not answer; return whether one answers again.

        Args:
            stalled: a bit for each root whose origin does not answer.
        """
        back = self._stalled & ~stalled
        self._stalled = stalled
        for root in range(back.bit_length()):
            if back >> root & 1:
                self._replicas.retry_root(root, Reason.BUSY)
                self._refused.pop(root, None)
                self._probes.pop(root, None)
        return back != 0

    def is_stalled(self, file: int) -> bool:
        """Return whether the origin of a File does not answer."""
        return bool(self._stalled and self._stalled >> self._replicas.root_of(file) & 1)

    def refuse(self, file: int) -> None:
        """Note a File of a stalled root; programs read it from the origin."""
        self._replicas.change(file, Event.REFUSED, reason=Reason.BUSY)
        self._refused[self._replicas.root_of(file)] = file

    def probes(self) -> list[int]:
        """Return one File of each stalled root whose trial is due."""
        now_s, found = self._clock(), []
        for root, file in list(self._refused.items()):
            tried, at_s = self._probes.get(root, (-1, now_s - PROBE_S))
            if self._is_staging(tried) or now_s - at_s < PROBE_S:
                continue
            del self._refused[root]
            self._probes[root] = (file, now_s)
            if self._replicas.retry(file, Reason.BUSY):
                found.append(file)
        return found

    def _is_staging(self, file: int) -> bool:
        return file >= 0 and self._replicas.is_staging(file)

    # -- shortages of the node ----------------------------------------------------

    def postpone(self, file: int, generation: int) -> None:
        """Retry a File later: its Transfer has failed because of a shortage.

        Args:
            generation: of the state word of the Transfer.
        """
        tries = self._tries.count(file, generation)
        pause_s = min(AGAIN_S * 2 ** (tries - 1), AGAIN_MAX_S)
        self._due_s[file] = self._clock() + pause_s

    def due(self) -> list[int]:
        """Return the Files whose retry is due."""
        if not self._due_s:
            return []
        now_s = self._clock()
        due = [file for file, at_s in self._due_s.items() if at_s <= now_s]
        for file in due:
            del self._due_s[file]
            self._replicas.retry(file, Reason.BUSY)
        return [file for file in due if self._replicas.is_due(file)]
