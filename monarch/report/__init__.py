"""The report of a job: the sources of its bytes, and the problems.

Names are imported on first use: an agent needs them only after its programs have ended.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monarch.report.file import (
        check_report_file,
        fill_template,
        read_report,
        write_report,
    )
    from monarch.report.merging import merge
    from monarch.report.model import (
        UNKNOWN_STATUS,
        Elsewhere,
        ErrorCount,
        FileSizes,
        FillFigures,
        JobFigures,
        Moment,
        PeerFigures,
        ProcessFigures,
        Report,
        ShareFigures,
        SlowCopy,
        Snapshot,
        TierFigures,
        Unstaged,
        WaitBucket,
        WaitTotal,
    )
    from monarch.report.node_report import NODE_REPORT_BYTES_MAX, encode_node_report
    from monarch.report.node_table import find_node
    from monarch.report.staged import (
        is_complete,
        is_staging,
        render_staged,
        staged_lines,
    )
    from monarch.report.summing import summarize
    from monarch.report.text import one_node_parts, render, report_parts

_PLACES = {
    "file": ("check_report_file", "fill_template", "read_report", "write_report"),
    "merging": ("merge",),
    "model": (
        "UNKNOWN_STATUS",
        "ErrorCount",
        "FileSizes",
        "Elsewhere",
        "FillFigures",
        "JobFigures",
        "Moment",
        "PeerFigures",
        "ProcessFigures",
        "Report",
        "ShareFigures",
        "SlowCopy",
        "Snapshot",
        "TierFigures",
        "Unstaged",
        "WaitBucket",
        "WaitTotal",
    ),
    "node_report": ("NODE_REPORT_BYTES_MAX", "encode_node_report"),
    "node_table": ("find_node",),
    "staged": ("is_complete", "is_staging", "render_staged", "staged_lines"),
    "summing": ("summarize",),
    "text": ("one_node_parts", "render", "report_parts"),
}

__all__ = [
    "NODE_REPORT_BYTES_MAX",
    "UNKNOWN_STATUS",
    "Elsewhere",
    "ErrorCount",
    "FileSizes",
    "FillFigures",
    "JobFigures",
    "Moment",
    "PeerFigures",
    "ProcessFigures",
    "Report",
    "ShareFigures",
    "SlowCopy",
    "Snapshot",
    "TierFigures",
    "Unstaged",
    "WaitBucket",
    "WaitTotal",
    "check_report_file",
    "encode_node_report",
    "fill_template",
    "find_node",
    "is_complete",
    "is_staging",
    "merge",
    "one_node_parts",
    "read_report",
    "render",
    "render_staged",
    "report_parts",
    "staged_lines",
    "summarize",
    "write_report",
]


def __getattr__(name: str) -> Any:
    for module, names in _PLACES.items():
        if name in names:
            value = getattr(import_module(f"monarch.report.{module}"), name)
            globals()[name] = value  # no further look-up
            return value
    raise AttributeError(f"module 'monarch.report' has no attribute {name!r}")
