"""The causes for which opens below a dataset read the origin, with their texts."""

from typing import Final, NamedTuple


class Cause(NamedTuple):
    """One cause for which opens of programs read the origin.

    Attributes:
        counter: the counter of the programs.
        text: the text after "N opens read the origin".
        trouble: Monarch should have served these opens.
    """

    counter: str
    text: str
    trouble: bool = False

    @property
    def whole_text(self) -> str:
        """Return the text that follows a count."""
        return f"opens read the origin {self.text}"


CAUSES: Final = (
    Cause("origin_early", "because the datasets were not indexed yet"),
    Cause("origin_program", "because Monarch does not serve the program"),
    Cause("origin_link", "through links that are not followed"),
    Cause("origin_inside", "through links that leave the dataset (`links: inside`)"),
    Cause("origin_parent", 'by a path with ".." after a link or an unknown name'),
    Cause(
        "origin_covered",
        "because the path leads elsewhere in that process: a mount or another root",
    ),
    Cause("origin_new", "because the file was created after the scan"),
    Cause("origin_unlisted", "because the file is not in the index (excluded)"),
    Cause(
        "origin_names",
        "because the file has several names on a file system that may part them",
    ),
    Cause("origin_how", "because of the flags or the call with which it was opened"),
    Cause("origin_denied", "because Monarch may not read the file"),
    Cause(
        "origin_written",
        "because the file was written to, or has changed at the origin",
    ),
    Cause("origin_refused", "because the file could not be staged"),
    Cause("origin_full", "because no tier had room for the file"),
    Cause(
        "origin_busy",
        "without a wait: the origin did not respond, or no free space",
        trouble=True,
    ),
    Cause(
        "origin_whole",
        "because a file that is to be staged whole is larger than "
        "cold_open.wait_max_whole",
    ),
    Cause(
        "origin_large",
        "without a wait: the file was too large, or by cold_open.mode",
    ),
    Cause("origin_timeout", "because the copy took too long", trouble=True),
    Cause("origin_silent", "because the agent did not respond", trouble=True),
    Cause("origin_slots", "because all request slots were in use", trouble=True),
    Cause("origin_lost", "because the copy could not be opened", trouble=True),
    Cause("origin_vfork", "because a vfork child must not wait", trouble=True),
)
"""Every open that reads the origin has one of these causes; in the report's order."""
