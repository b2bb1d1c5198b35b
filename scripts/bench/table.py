"""Rows of the budget table, and how they are printed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One budget: what was measured, against what, and the ratio that is allowed."""

    what: str
    measured: str
    against: str
    ratio: float
    budget: float
    at_least: bool = False

    @property
    def kept(self) -> bool:
        """Whether the budget is kept."""
        return self.ratio >= self.budget if self.at_least else self.ratio <= self.budget


def print_rows(rows: list[Row]) -> None:
    """Print the table in Markdown."""
    print("| what | measured | against | ratio | budget | |")
    print("| --- | --- | --- | ---: | ---: | --- |")
    for row in rows:
        sign = "≥" if row.at_least else "≤"
        verdict = "kept" if row.kept else "MISSED"
        print(
            f"| {row.what} | {row.measured} | {row.against} "
            f"| {row.ratio:.2f} | {sign} {row.budget:g} | {verdict} |"
        )
