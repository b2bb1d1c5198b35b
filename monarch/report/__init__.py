"""The account of a job: where its bytes came from, and what went wrong."""

from monarch.report.file import (
    check_report_file,
    fill_template,
    read_report,
    write_report,
)
from monarch.report.model import (
    JobFigures,
    ProcessFigures,
    Snapshot,
    TierFigures,
    Unstaged,
    WaitBucket,
)
from monarch.report.summarize import summarize
from monarch.report.text import render

__all__ = [
    "JobFigures",
    "ProcessFigures",
    "Snapshot",
    "TierFigures",
    "Unstaged",
    "WaitBucket",
    "check_report_file",
    "fill_template",
    "read_report",
    "render",
    "summarize",
    "write_report",
]
