"""`python -m monarch.cli.pages`: writes the pages that are made from the code.

They are checked in, so that a build needs nothing but a C compiler, and a test compares
them with what the code gives. Pages on a topic, WRITTEN, stand beside them:

    monarch/pages/*.md      reference, which `monarch help` shows
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

CONFIGURATION: Final = """
Every key of a configuration file, in YAML. The same keys follow `--set`, such as
`--set fill.concurrency=8`, and name environment variables, such as
`MONARCH_STAGING_FILL__CONCURRENCY=8`. `monarch config init` writes a file with all of
them, `monarch config check` reports mistakes, `monarch config show --origin` prints
the values that hold and where they come from.

Sizes need a unit (8GiB, 80GB), and so do durations (500ms, 30s, 10min, 2h, 7d).
"""

REPORT: Final = """
Every key of the JSON that `monarch run --report FILE.json` writes and `monarch report`
reads. Sizes are in bytes, times in seconds, shares from 0 to 1; null is unknown.
"""


def report_page() -> str:
    """Return the page on the report, without which of its keys must be there."""
    text = (files("monarch.report") / "report.schema.json").read_text()
    schema = json.loads(text, object_hook=_without_required)
    return schema_page("Report fields", REPORT, schema)


def _without_required(value: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without `required`, which is no advice to who reads a report."""
    is_schema = isinstance(value.get("required"), list)
    return {k: v for k, v in value.items() if not (is_schema and k == "required")}


REFERENCE: Final[dict[str, Callable[[], str]]] = {
    "configuration": lambda: schema_page("Configuration", CONFIGURATION, json_schema()),
    "loader": loader_page,
    "metrics": metrics_reference,
    "report-fields": report_page,
}
"""What makes each page of reference, by its topic."""

WRITTEN: Final = ("environments.md", "stores.md")
"""Pages that are not made from the code."""


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
    """Write all pages below a directory, and remove those that are none any more."""
    wanted = {folder / name: text for name, text in texts().items()}
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path not in wanted and path.name not in WRITTEN:
            path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1] if sys.argv[1:] else "monarch/pages"))
