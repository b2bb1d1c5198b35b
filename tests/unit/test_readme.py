"""The documents: their lengths, links, commands, topics and picture."""

import re
import shlex
import xml.etree.ElementTree as ElementTree

import click
import pytest

from monarch import cli
from monarch.cli.help import topics
from support.documents import DOCUMENTS, PAGES, ROOT, anchors, code, links

LINES_MAX = {
    "README.md": 300,
    "ARCHITECTURE.md": 250,
    "configs/README.md": 150,
    "CONTRIBUTING.md": 80,
}
COLUMNS_MAX = 100
TOPICS = {
    *("configuration", "cluster", "frameworks", "semantics", "large-files"),
    *("packed-tiers", "loader", "stores", "hints", "report", "containers", "security"),
    *("troubleshooting", "performance"),
}
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


def commands(text: str) -> list[list[str]]:
    """The `monarch` commands in the code of a document, without what is around them."""
    found = re.findall(r"^(?:.*[ /(])?(monarch [a-z].*)$", code(text), re.MULTILINE)
    lines = [re.split(r" [|#] | -- |\)|;", line)[0] for line in found]
    return [shlex.split(re.sub(r"[\[\]]", "", line), comments=True) for line in lines]


def options(word: str) -> set[str] | None:
    """The options of a verb and of those below it; None if no such verb exists."""
    context = click.Context(cli.monarch)
    found = cli.monarch.get_command(context, word)
    if found is None:
        return None
    below = found.commands.values() if isinstance(found, click.Group) else ()
    return {
        name for verb in (found, *below) for one in verb.params for name in one.opts
    }


@pytest.mark.parametrize("name", LINES_MAX)
def test_a_document_is_short(name: str) -> None:
    assert len((ROOT / name).read_text().splitlines()) <= LINES_MAX[name]


@pytest.mark.parametrize("name", NAMES)
def test_lines_of_prose_fit_a_terminal(name: str) -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / name).read_text(), flags=re.M | re.S)
    prose = [line for line in text.splitlines() if not line.startswith("|")]

    assert [line for line in prose if len(line) > COLUMNS_MAX] == []


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_files_and_headings(name: str) -> None:
    path = ROOT / name

    for link in links(path.read_text()):
        file, _, heading = link.partition("#")
        target = path.parent / file if file else path
        assert target.exists(), link
        assert not heading or heading in anchors(target.read_text()), link


def test_each_topic_exists_and_is_in_the_table_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    table = readme.partition("\n## Topics\n")[2].partition("\n## ")[0]

    assert set(topics()) >= TOPICS
    assert {f"monarch/pages/{name}.md" for name in topics()} == {*links(table)}


def test_the_picture_has_a_text_and_colours_for_light_and_dark() -> None:
    readme = (ROOT / "README.md").read_text()
    [(text, target)] = re.findall(r"!\[([^]]*)\]\(([^)]+)\)", readme)
    picture = ElementTree.parse(ROOT / target).getroot()
    names = {part.tag.rpartition("}")[2]: part.text or "" for part in picture}

    assert len(text.split()) > 5
    assert names["title"]
    assert len(names["desc"].split()) > 20
    assert "prefers-color-scheme: dark" in names["style"]


@pytest.mark.parametrize("name", NAMES)
def test_each_command_of_a_document_has_the_options_that_it_shows(name: str) -> None:
    for words in commands((ROOT / name).read_text()):
        known = options(words[1])
        assert known is not None, words
        own = words[2 : words.index("--")] if "--" in words else words[2:]
        used = {word.partition("=")[0] for word in own if word.startswith("-")}
        assert used <= known | {"--help"}, words


def test_each_row_about_several_nodes_is_a_test() -> None:
    table = (PAGES / "cluster.md").read_text().split("| what happens | test |")[1]
    rows = re.findall(r"^\| ([a-z ]+) \| `(test_\w+\.py)` \|$", table, re.MULTILINE)

    assert len(rows) > 10
    for words, file in rows:
        text = (ROOT / "tests" / "integration" / file).read_text()
        assert f"def test_{words.replace(' ', '_')}(" in text, words


def test_each_place_that_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`([\w./]+(?:\.(?:py|c|h|def)|/))`", text))
    native = ROOT / "monarch" / "native"
    homes = (ROOT, ROOT / "monarch", native)

    assert len(named) > 30
    assert [n for n in named if not any((h / n).exists() for h in homes)] == []
