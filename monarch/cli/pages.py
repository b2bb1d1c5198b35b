"""`python -m monarch.cli.pages`: writes the pages that are made from the code.

They are checked in, so that a build needs only a C compiler, and a test compares them
with the output of the code. Topics that are written by hand are beside them:

    monarch/pages/*.md      topics and reference, which `monarch help` shows
    monarch/pages/share/    manual pages and completion, installed below share/
"""

import json
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from monarch.cli import completions, manual
from monarch.cli.loader_page import loader_page
from monarch.cli.schema_page import schema_page
from monarch.config import json_schema
from monarch.metrics import metrics_reference

REPORT: Final = """
Every key of a report's JSON, which `monarch run --report FILE.json` writes and
`monarch report` reads. Sizes are in bytes, times in seconds, shares from 0 to 1; null
is unknown.
"""


def report_page() -> str:
    """Return the page on the report, without marks for required keys."""
    text = (files("monarch.report") / "report.schema.json").read_text()
    schema = json.loads(text, object_hook=_without_required)
    return schema_page("Report fields", REPORT, schema)


def _without_required(value: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without `required`, which does not help readers of a report."""
    is_schema = isinstance(value.get("required"), list)
    return {k: v for k, v in value.items() if not (is_schema and k == "required")}


def configuration_page() -> str:
    """Return the page on the configuration: prose, and every key of the schema."""
    text = (files("monarch.config") / "page.md").read_text()
    title, _, introduction = text.removeprefix("# ").partition("\n")
    return schema_page(title, introduction, json_schema())


REFERENCE: Final[dict[str, Callable[[], str]]] = {
    "configuration": configuration_page,
    "loader": loader_page,
    "metrics": metrics_reference,
    "report-fields": report_page,
}
"""The function that makes each reference page, by its topic."""


def texts() -> dict[str, str]:
    """Return the text of each page by its path below `monarch/pages`."""
    reference = {f"{topic}.md": make() for topic, make in REFERENCE.items()}
    manuals = {f"share/man/man1/{name}": text for name, text in manual.pages().items()}
    return {
        **reference,
        **manuals,
        "share/bash-completion/completions/monarch": completions.bash(),
        "share/zsh/site-functions/_monarch": completions.zsh(),
        "share/fish/vendor_completions.d/monarch.fish": completions.fish(),
    }


def write(folder: Path) -> None:
    """Write all pages below a directory, and remove stale ones below its `share`."""
    wanted = {folder / name: text for name, text in texts().items()}
    for path in [path for path in (folder / "share").rglob("*") if path.is_file()]:
        if path not in wanted:
            path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1] if sys.argv[1:] else "monarch/pages"))
