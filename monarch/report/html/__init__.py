"""The report as a page of HTML."""

from monarch.report.html.page import page

__all__ = ["page"]
