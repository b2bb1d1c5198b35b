"""The report of a job: where its bytes came from, and the problems."""

from monarch.report.file import (
    check_report_file,
    fill_template,
    read_report,
    write_report,
)
from monarch.report.merge import merge
from monarch.report.model import (
    FillFigures,
    JobFigures,
    PeerFigures,
    ProcessFigures,
    Report,
    ShareFigures,
    Snapshot,
    TierFigures,
    Unstaged,
    WaitBucket,
)
from monarch.report.node_report import NODE_REPORT_BYTES_MAX, encode_node_report
from monarch.report.node_table import find_node
from monarch.report.staged import (
    is_complete,
    is_staging,
    render_staged,
    staged_lines,
)
from monarch.report.summarize import summarize
from monarch.report.text import one_node_parts, render, report_parts

__all__ = [
    "NODE_REPORT_BYTES_MAX",
    "FillFigures",
    "JobFigures",
    "PeerFigures",
    "ProcessFigures",
    "Report",
    "ShareFigures",
    "Snapshot",
    "TierFigures",
    "Unstaged",
    "WaitBucket",
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
