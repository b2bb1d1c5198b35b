"""The command `monarch`: runs a verb, and turns errors into a line and an exit code."""

import errno
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Final

import click

from monarch import __version__
from monarch.errors import MonarchError


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb, whose module is imported only if it is used.

    Args:
        place: `module:attribute` of its click command.
    """

    place: str
    help: str


# The errors of a write of a verb's output to a full or broken device.
_UNWRITTEN: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

VERBS: Final = {
    "run": Verb("monarch.cli.run:run", "Run a program with its dataset staged."),
    "status": Verb("monarch.cli.status:status", "Show the state of agents."),
    "top": Verb("monarch.cli.top:top", "Watch agents while they run."),
    "stop": Verb("monarch.cli.status:stop", "Stop the agents of this node."),
    "report": Verb("monarch.cli.report:report", "Print a report file."),
    "hint": Verb("monarch.cli.status:hint", "Name the files that will be opened next."),
    "index": Verb("monarch.cli.index:index", "Scan a dataset and save its index."),
    "codecs": Verb(
        "monarch.cli.codecs:codecs", "Measure codecs on a dataset, and choose one."
    ),
    "records": Verb(
        "monarch.cli.records:records", "Index packed records and report their cost."
    ),
    "stage": Verb("monarch.cli.stage:stage", "Fill the tiers of nodes before a job."),
    "list": Verb(
        "monarch.cli.retained:list_retained", "List what is retained on this node."
    ),
    "plan": Verb("monarch.cli.plan:plan", "Predict what each node would store."),
    "doctor": Verb("monarch.cli.doctor:doctor", "Report what prevents staging here."),
    "env": Verb("monarch.cli.env:env", "Print what a container needs."),
    "clean": Verb("monarch.cli.clean:clean", "Remove leftovers of dead jobs."),
    "config": Verb(
        "monarch.cli.config:config", "Check, show or create a configuration."
    ),
    "help": Verb("monarch.cli.help:help_command", "Explain a verb or a key."),
    "version": Verb("monarch.cli:version", "Print the version."),
    "agent": Verb("monarch.cli.agent:agent", "Start an agent before its programs."),
}


class VerbGroup(click.Group):
    """The verbs of the table."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the verbs in the table's order."""
        return list(VERBS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        """Import a verb's command, None for an unknown verb."""
        if name not in VERBS:
            return None
        module, _, attribute = VERBS[name].place.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb; end as by SIGPIPE if the reader of stdout is gone."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            ctx.exit(_close_stdout())

    def format_commands(
        self, _ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """List the verbs without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or raise UsageError with the nearest one."""
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            near = get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"unknown verb {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.command("version")
def version() -> None:
    """Print the version."""
    click.echo(f"monarch {__version__}")


@click.group(
    cls=VerbGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="VERB [ARG]...",
)
@click.version_option(__version__, message="monarch %(version)s")
def monarch() -> None:
    """Stage the dataset of a job on its nodes' own RAM and SSD.

    The program is not changed: `monarch run --data /pfs/imagenet -- python train.py`
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    color = False if os.environ.get("NO_COLOR") else None
    try:
        code = monarch.main(
            argv, prog_name="monarch", standalone_mode=False, color=color
        )
        _flush()
    except click.exceptions.Abort:
        return 130
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        return _print_error(_usage_text(error), error.exit_code)
    except MonarchError as error:
        return _print_error(str(error), error.exit_code)
    except BrokenPipeError:
        return _close_stdout()
    except OSError as error:
        if error.errno not in _UNWRITTEN:
            raise
        _close_stdout()
        return _print_error(f"cannot write the output: {error.strerror}", 125)
    return code if isinstance(code, int) else 0


def _print_error(text: str, code: int) -> int:
    from monarch.cli.terminal import print_line

    for line in text.splitlines() or [""]:
        print_line(f"monarch: {line}")
    return code


def _usage_text(error: click.ClickException) -> str:
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    text = error.format_message().removesuffix(".")
    return f"{text} (see `{ctx.command_path} --help`)" if ctx else text


def _flush() -> None:
    if sys.stdout is not None:  # it is None if descriptor 1 was closed
        sys.stdout.flush()


def _close_stdout() -> int:
    """Redirect stdout to /dev/null, so that the flush at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141
