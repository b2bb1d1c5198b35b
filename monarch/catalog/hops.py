"""Whether every hop of a symbolic link is catalogued, told from the texts of the links.

A program that changes a catalogued name marks what depends on it. A link that passes
through a name outside of the Catalog could be led elsewhere without a mark, so such a
link is left to the origin.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

HOPS_MAX = 40
"""Links in one path that the kernel follows (path_resolution(7))."""


@dataclass(frozen=True, slots=True)
class Names:
    """What a scan knows of the names that a link may pass.

    Attributes:
        root: realpath of the root.
        texts: path of a link below the root → what the link says.
        directories: paths of the directories that were read; the root is the empty one.
    """

    root: bytes
    texts: Mapping[bytes, bytes]
    directories: Container[bytes]

    def goal(self, link: bytes) -> bytes | None:
        """Return the path below the root that a link leads to.

        Returns:
            None where a hop is not catalogued: a directory that was not read, a link
            that is not listed, or a way outside of the root.
        """
        here = _parent(link)
        steps: list[bytes] = []
        text: bytes | None = self.texts[link]
        for _ in range(HOPS_MAX):
            if text is None or not self._leads_below(text):
                break
            here = b"" if text.startswith(b"/") else here
            steps += self._names(text)
            here, text = self._walk(here, steps)
            if text is None:
                return here if not steps else None
        return None

    def _walk(self, here: bytes, steps: list[bytes]) -> tuple[bytes, bytes | None]:
        """Take steps, last first, up to the next link: its directory and its text."""
        while steps and here in self.directories and (here or steps[-1] != b".."):
            name = steps.pop()
            if name == b"..":
                here = _parent(here)
                continue
            path = here + b"/" + name if here else name
            if path in self.texts:
                return here, self.texts[path]
            here = path
        return here, None

    def _leads_below(self, text: bytes) -> bool:
        absolute = text.startswith(b"/")
        return not absolute or (text + b"/").startswith(self.root + b"/")

    def _names(self, text: bytes) -> list[bytes]:
        below = text[len(self.root) :] if text.startswith(b"/") else text
        return [name for name in below.split(b"/") if name not in (b"", b".")][::-1]


def _parent(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


def catalogued_links(
    names: Names, targets: Mapping[bytes, bytes]
) -> dict[bytes, bytes]:
    """Return the links of which every hop is catalogued, with where they lead.

    Args:
        targets: path of a link → the path below the root at which the kernel ended.
    """
    return {
        link: target for link, target in targets.items() if names.goal(link) == target
    }
