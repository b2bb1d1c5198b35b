"""Reads a page of HTML as a browser without a network would, strictly."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

_EMPTY = {"meta", "br", "rect", "path"}
_EITHER = {"path"}  # an empty one, or one with a title
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "section"),
    *("footer", "h1", "h2", "p", "div", "span", "dl", "dt", "dd", "ul", "ol", "li"),
    *("data", "pre", "code", "br", "figure", "figcaption", "details", "summary"),
    *("table", "thead", "tbody", "tr", "th", "td", "svg", "rect", "path"),
}
ATTRIBUTES = {
    *("lang", "charset", "name", "content", "id", "class", "style", "scope", "role"),
    *("value", "data-of", "title", "aria-hidden", "aria-label"),
    *("viewbox", "preserveaspectratio", "width", "height", "d"),
}


@dataclass
class Shown:
    """A figure of a page: its value and its name as they stand in the markup."""

    value: str
    path: str
    text: str = ""


@dataclass
class Element:
    """An element of a page that was left open: its name and its attributes."""

    tag: str
    attributes: dict[str, str]
    text: str = ""
    children: list["Element"] = field(default_factory=list)

    def all(self, tag: str) -> list["Element"]:
        """Return the elements of a name in it, in their order."""
        found = []
        for child in self.children:
            found += [child] * (child.tag == tag) + child.all(tag)
        return found

    def one(self, name: str) -> "Element":
        """Return the element with an id."""
        return next(e for e in self.walk() if e.attributes.get("id") == name)

    def walk(self) -> list["Element"]:
        """Return it and all elements in it."""
        return [self, *(found for child in self.children for found in child.walk())]

    def words(self) -> str:
        """Return all of its text, with single spaces."""
        return " ".join(self.text.split())


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.top = Element("", {})
        self.open = [self.top]

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS, f"<{tag}>"
        assert {name for name, _ in attrs} <= ATTRIBUTES, attrs
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in _EMPTY or tag in _EITHER:
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if self.open[-1].tag == tag:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open[-1].tag == tag, f"</{tag}> in <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data):
        for element in self.open:
            element.text += data


def read(page: str) -> Element:
    """Return a page, all of whose elements must be closed in their order and known."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == [reader.top]
    return reader.top


def figures(page: Element) -> list[Shown]:
    """Return the figures of a page."""
    return [
        Shown(e.attributes["value"], e.attributes.get("data-of", ""), e.words())
        for e in page.all("data")
    ]


def rows(section: Element) -> list[list[str]]:
    """Return the rows of the tables of a section as texts, titles included."""
    return [
        [cell.words() for cell in row.children if cell.tag in ("td", "th")]
        for row in section.all("tr")
    ]
