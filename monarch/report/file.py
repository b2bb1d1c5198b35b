"""Report files: checked before a job, written atomically, and read."""

import json
import os
import re
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from monarch.atomic_file import whole_file
from monarch.errors import UsageError
from monarch.report.model import SCHEMA, Report

# Larger files are no reports.
REPORT_BYTES_MAX: Final = 256 << 20
SCHEMAS: Final = (1, SCHEMA)
PAGE: Final = ".html"


def fill_template(template: str, job: str, node: str) -> Path:
    """Return the path of a template with %j job, %n node, %t time, %p pid and %%."""
    values = {
        "j": job,
        "n": node,
        "t": time.strftime("%Y%m%dT%H%M%S"),
        "p": str(os.getpid()),
        "%": "%",
    }
    return Path(re.sub(r"%([jntp%])", lambda found: values[found[1]], template))


def data_file(path: Path) -> Path:
    """Return the JSON file of a report, which for a page is beside the page."""
    return path.with_suffix(".json") if path.suffix == PAGE else path


def check_report_file(path: Path, template: str = "") -> None:
    """Check before the job that a report can be written after it.

    Args:
        template: template of the path; directories with replaced parts are created.

    Raises:
        UsageError: it cannot be written.
    """
    _check_place(path)
    _check_directory(path, template)
    data = data_file(path)
    if data == path or not os.path.lexists(data):
        return
    # The user has not named this file, so it must not be one of the user's files.
    _check_place(data)
    try:
        read_report(data)
    except UsageError as error:
        raise UsageError(
            f"report.file: the data of {path} would replace {data}, which is no report "
            "of Monarch; choose another name"
        ) from error


def _check_directory(path: Path, template: str) -> None:
    """Reject a directory that does not exist: it may be mistyped."""
    given = template.partition("%")[0] if "%" in os.path.dirname(template) else ""
    place = Path(os.path.dirname(given)) if given else path.parent
    if not os.path.lexists(place):
        raise UsageError(
            f"report.file: the directory {place} of {path} does not exist; make it, or "
            "name another"
        )


def _check_place(path: Path) -> None:
    if os.path.isdir(path):
        raise UsageError(f"report.file: {path} is a directory; name a file in it")
    if os.path.exists(path) and not os.path.isfile(path):
        return  # a device, such as /dev/null
    place = path.parent
    while not os.path.lexists(place):
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise UsageError(
            f"report.file: {path} cannot be written: {error.strerror}"
        ) from error


def write_report(path: Path, report: Report, *, mode: int = 0o600) -> Path:
    """Write a report atomically: its JSON and, if the path is a page, that page.

    A node that was cut off from the others also writes a report, perhaps as the last
    one: it does not replace a report of more nodes, but uses another name.

    Returns:
        The path of the report.
    """
    if _is_more_complete(data_file(path), report):
        path = path.with_stem(f"{path.stem}.{report['run']['node']}")
    path.parent.mkdir(parents=True, exist_ok=True)
    data = data_file(path)
    with whole_file(data, mode=mode) as file:
        file.write(json.dumps(report, indent=1).encode() + b"\n")
    if data != path:
        from monarch.report.html import page

        body = page(report).encode()
        with whole_file(path, mode=mode) as file:
            file.write(body)
    return path


def _is_more_complete(path: Path, report: Report) -> bool:
    """Return whether a file is a report of more nodes of the same launch."""
    try:
        if not path.is_file() or path.stat().st_size > REPORT_BYTES_MAX:
            return False
        found = read_report(path)
        ended_s = found["run"]["started_s"] + found["run"]["seconds"]
        is_same = found["run"]["job"] == report["run"]["job"]
        # A job name may be reused, but then the earlier job ended before this one.
        is_same = is_same and ended_s > report["run"]["started_s"]
        return is_same and _reporters(found) > _reporters(report)
    except (UsageError, OSError, KeyError, TypeError):
        return False  # not a report of this job


def _reporters(report: Report) -> int:
    nodes = report.get("nodes", ())
    return sum(node["reported"] is True for node in nodes) or 1


def read_report(path: Path) -> Report:
    """Return the report in a file.

    Raises:
        UsageError: the file is not a report, or is of an unknown version.
    """
    try:
        report: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not a report (not JSON: {error})") from error
    if not isinstance(report, dict) or "schema" not in report:
        raise UsageError(f"{path}: not a report of `monarch run`")
    if report["schema"] not in SCHEMAS:
        raise UsageError(
            f"{path}: report of schema {report['schema']!r}; this version of Monarch "
            f"reads schema {' and '.join(map(str, SCHEMAS))}"
        )
    return report
