"""Tables and progress of verbs: rich on a terminal, plain text elsewhere."""

import io
import subprocess
import sys

import pytest
from rich.console import Console

from monarch.cli import terminal
from monarch.origins.progress import Advance
from monarch.report.format import WIDTH, Part, Table, plain_text

TABLE = Table(
    ("node", "files", "bytes"),
    (20, 10, 12),
    (("n0", "1,204", "1.2 GiB"), ("all", "2,408", "2.4 GiB")),
)
PARTS: list[Part] = ["monarch: a headline", TABLE, "  staged: 1 file", "  bad\x1b[2J"]


@pytest.fixture
def console():
    """A console of rich on what it takes for a terminal."""
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        width=WIDTH,
        color_system="standard",
        highlight=False,
        markup=False,
    )


def test_a_pipe_gets_plain_text(capsys):
    terminal.print_parts(PARTS)

    out = capsys.readouterr().out
    assert out == plain_text([*PARTS[:3], "  bad\\x1b[2J"])
    assert out.isascii()
    assert "\x1b" not in out


def test_a_terminal_gets_a_table(console):
    terminal.print_rich([TABLE, "  [red]staged[/red]: 1 file"], console)

    text = console.file.getvalue()
    assert "\x1b[1m" in text
    assert "─" in text
    assert all(cell in text for row in TABLE.rows for cell in row)
    assert "  [red]staged[/red]: 1 file" in text


@pytest.mark.parametrize(("no_color", "bold"), [("1", False), ("", True)])
def test_no_color_switches_bold_off_too(monkeypatch, no_color, bold):
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_color)

    terminal.print_parts(PARTS[:2])

    assert "monarch: a headline" in screen.getvalue()
    assert ("\x1b[" in screen.getvalue()) is bold


def test_a_table_in_a_narrow_terminal_loses_no_text(console):
    console.width = 30

    terminal.print_rich([TABLE], console)

    text = "".join(console.file.getvalue().split())
    assert "1,204" in text
    assert "2.4" in text


def test_lines_on_a_terminal_are_folded_as_in_a_pipe(console):
    parts: list[Part] = ["word " * 15 + "6.3 MiB and more", "  " + "text " * 30]

    terminal.print_rich(parts, Console(file=console.file, width=WIDTH))

    assert console.file.getvalue() == plain_text(parts)


@pytest.mark.parametrize("module", ["monarch.agent.main", "monarch.report"])
def test_an_agent_does_not_import_rich(module):
    code = f"import sys, {module}; sys.exit('rich' in sys.modules)"

    assert (
        subprocess.run([sys.executable, "-P", "-c", code], timeout=60).returncode == 0
    )


def screen_of(monkeypatch, kind):
    """What a terminal of a kind gets, on which progress shows at once."""
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(terminal, "QUIET_SECONDS", 0.0)
    return screen


def test_progress_on_a_terminal_is_removed_at_the_end(monkeypatch):
    screen = screen_of(monkeypatch, "xterm")

    progress = terminal.StagingProgress("staging")
    progress(3 << 20, 10 << 20, None, None)
    progress(5 << 20, 10 << 20, float(1 << 20), 5.0)
    progress.close()

    shown = screen.getvalue()
    assert "monarch: staging" in shown
    assert "50.0% of 10.0 MiB, 1.0 MiB/s, 5.0 s left" in shown
    assert shown.endswith("\x1b[2K")


def test_progress_on_a_dumb_terminal_is_lines(monkeypatch):
    screen = screen_of(monkeypatch, "dumb")

    progress = terminal.StagingProgress("staging")
    progress(5 << 20, 10 << 20, None, None)
    progress.close()

    assert screen.getvalue() == "monarch: staging: 50.0% of 10.0 MiB\n"


def test_progress_of_records_shows_the_total_if_it_is_known(monkeypatch):
    screen = screen_of(monkeypatch, "dumb")
    monkeypatch.setattr(terminal, "LINE_SECONDS", 0.0)

    progress = terminal.RecordsProgress("records of redis://h/0")
    progress("listed", 12_000, 0)
    progress("indexed", 3, 40)
    progress.close()

    assert screen.getvalue() == (
        "monarch: records of redis://h/0: 12,000 listed\n"
        "monarch: records of redis://h/0: 3 of 40 indexed\n"
    )


def test_short_steps_show_no_progress(capsys):
    progress = terminal.ScanProgress("/pfs/x")
    progress(Advance(100))
    progress.close()

    assert capsys.readouterr().err == ""
