"""The Markdown documents of the repository: their code, links and headings."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "monarch" / "pages"
DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "configs" / "README.md",
    *sorted(PAGES.glob("*.md")),
)
_FENCE = re.compile(r"^```(\w+)( job)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^ {4}(.*)$", re.MULTILINE)
_LINK = re.compile(r"\[[^]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


class Example(NamedTuple):
    """One block of code.

    Attributes:
        in_job: it runs as a program of a job.
    """

    language: str
    in_job: bool
    text: str


def examples(document: str) -> list[Example]:
    """The fenced blocks of a document, in its order."""
    return [
        Example(language, bool(job), text)
        for language, job, text in _FENCE.findall(document)
    ]


def code(document: str) -> str:
    """All code of a document, without the prose."""
    fenced = [one.text for one in examples(document) if one.language == "sh"]
    return "\n".join([*fenced, *_INDENTED.findall(_FENCE.sub("", document))])


def links(document: str) -> list[str]:
    """The targets of links to files and headings, but not of those to other sites."""
    prose = _FENCE.sub("", document)
    return [link for link in _LINK.findall(prose) if not re.match(r"\w+:", link)]


def anchors(document: str) -> Iterator[str]:
    """Yields the anchors that a code host assigns to the headings."""
    for heading in _HEADING.findall(_FENCE.sub("", document)):
        plain = re.sub(r"[^\w\- ]", "", heading.lower())
        yield plain.strip().replace(" ", "-")
