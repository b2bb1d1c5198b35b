"""A report as one page of HTML, which needs no other file, script or network.

The page is made from the JSON alone. All its texts are escaped, because names of files
and programs are not trusted.
"""

import html
import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from monarch.errors import printable
from monarch.report.advice import advise
from monarch.report.figures import UNKNOWN, Figure, get, with_headline
from monarch.report.format import listed, short_names
from monarch.report.html import files, nodes, opens, over_time
from monarch.report.html.blocks import (
    Bar,
    Block,
    Lines,
    Paths,
    Section,
    Words,
    short,
)
from monarch.report.html.charts import HEIGHT, WIDTH
from monarch.report.html.verdict import tiles, verdict
from monarch.report.model import Report

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATES: Final = Path(__file__).with_name("templates")
_COMMAND_MAX: Final = 600
_NAMES_MAX: Final = 5
_SENTENCES_MAX: Final = 600
_CONFIG_MAX: Final = 40_000
_LINE_MAX: Final = 100

_SECTIONS: Final[tuple[Callable[[Report], Section | None], ...]] = (
    over_time.over_time,
    over_time.passes,
    opens.sources,
    opens.waits,
    files.tiers,
    nodes.nodes,
    nodes.programs,
    files.unstaged,
    files.files,
    files.slowest,
    files.loaders,
    files.problems,
)
_DEFINITIONS: Final = (
    (
        "ready",
        "An open of a file of a dataset that a tier or the pool answered, without any "
        "wait and without the origin.",
    ),
    (
        "waited",
        "An open of a file that was not there yet; it waited until the file, or the "
        "part of it that was read, had been copied.",
    ),
    (
        "pass-through",
        "Opens of other files, and opens for writing, which Monarch leaves alone.",
    ),
    ("origin", "Where the dataset is kept: the file system that all nodes share."),
    (
        "read from the origin",
        "The bytes that Monarch itself read there, failed copies included, and the "
        "bytes of large files that programs were seen to read there. Exact.",
    ),
    (
        "size of the files opened",
        "The sum of the sizes of files, counted at each open. It is not what was read: "
        "a program may read a part of a file, or read it twice.",
    ),
    (
        "of the dataset",
        "Bytes read from the origin, divided by the size of the dataset. 1 is the "
        "least that reads each byte once. “At most” counts the whole size of each file "
        "that a program opened at the origin.",
    ),
    (
        "time saved",
        "An estimate: the bytes that were not asked of the origin, divided by the rate "
        "that was measured there, less waits and start-up. Never below 0.",
    ),
    (
        "pass",
        "One way through the dataset, recognised from files that are opened again; "
        "often an epoch.",
    ),
    ("staged", "Copied from the origin into a tier of a node. Exact."),
    ("1 KiB", "1,024 bytes; 1 MiB is 1,024 KiB, and so on."),
)


def page(report: Report) -> str:
    """Return the page of a report, which may be of an older schema.

    Raises:
        LookupError, TypeError, ValueError, AttributeError: the report was edited and is
            incomplete.
    """
    report = with_headline(report)
    found = [section(report) for section in _SECTIONS]
    text: str = _template().render(
        title=short(f"Monarch: job {get(report, 'run.job', UNKNOWN)}"),
        facts=_facts(report),
        verdict=verdict(report),
        tiles=tiles(report),
        advice=[
            one._replace(text=short(one.text, _SENTENCES_MAX), line=short(one.line))
            for one in advise(report)
        ],
        was_staged=not get(report, "run.plain", ""),
        sections=[section for section in found if section is not None],
        folded=_folded(report),
        field=(WIDTH, HEIGHT),
        version=short(get(report, "tool.version", UNKNOWN)),
        schema=report["schema"],
    )
    return text


@cache
def _template() -> "Template":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    kinds = {"figure": Figure, "bar": Bar, "paths": Paths}
    for name, kind in kinds.items():
        environment.tests[name] = _test(kind)
    return environment.get_template("page.html")


def _test(kind: type[object]) -> Any:
    """Return a template test of whether a value is of a kind."""
    return lambda value: isinstance(value, kind)


def _clean(value: Any) -> Any:
    """Return a value without unprintable characters; markup is not changed."""
    return printable(value) if type(value) is str else value


def _facts(report: Report) -> list[tuple[str, str]]:
    run = report["run"]
    command = shlex.join(run.get("command") or ())
    found = [
        ("nodes" if report.get("nodes") else "node", _where(report)),
        ("datasets", short(", ".join(run["datasets"]))),
        ("began", _moment(run["started_s"])),
        ("ended", _moment(run.get("ended_s") or run["started_s"] + run["seconds"])),
    ]
    if command:
        found.insert(0, ("command", short(command, _COMMAND_MAX)))
    if run.get("exit_status") is not None:
        found.append(("exit status", str(run["exit_status"])))
    return found


def _where(report: Report) -> str:
    rows = report.get("nodes")
    if not rows:
        return short(report["run"]["node"])
    names = short_names([row["name"] for row in rows])
    return short(f"{len(names):,}: {listed(names, _NAMES_MAX)}")


def _moment(seconds: float) -> str:
    """Return a moment in UTC, which is the same for all readers."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _folded(report: Report) -> list[Section]:
    """Return the sections that a click opens."""
    found = [Section("definitions", "What the words mean", [Words(_DEFINITIONS)])]
    versions = {"monarch": get(report, "tool.version", UNKNOWN)}
    versions |= get(report, "run.versions") or {}
    rows = tuple((short(name, 40), short(text)) for name, text in versions.items())
    found.append(Section("versions", "Versions", [Words(rows)]))
    config = get(report, "run.config")
    lines = "This report does not contain it: an older version of Monarch wrote it."
    blocks: list[Block] = [Lines((lines,))]
    if config:
        blocks = [Lines(tuple(_config_lines(config)), is_literal=True)]
    return [*found, Section("config", "Configuration of the run", blocks)]


def _config_lines(config: Mapping[str, Any]) -> list[str]:
    """Return the configuration as lines of JSON, up to the limit of a page."""
    found: list[str] = []
    room = _CONFIG_MAX
    for line in _all_lines(config):
        room -= len(html.escape(line))
        if room < 0:
            return [*found, "… the rest is in the JSON report"]
        found.append(line)
    return found


def _all_lines(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each key, or for each of its values if it is long."""
    for name, value in config.items():
        whole = f"{name}: {json.dumps(value, ensure_ascii=False)}"
        if len(whole) <= _LINE_MAX or not isinstance(value, Mapping | list):
            yield short(whole)
            continue
        yield short(f"{name}:")
        rows = (
            [(f"{key}:", one) for key, one in value.items()]
            if isinstance(value, Mapping)
            else [("-", one) for one in value]
        )
        for start, one in rows:
            yield short(f"  {start} {json.dumps(one, ensure_ascii=False)}")
