"""The agent that `monarch run` has started.

The configuration is validated in a forked process while this one imports the rest: the
libraries that read options and validate values would take half of the start, and are
not needed afterwards.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from monarch.background import forked

if TYPE_CHECKING:
    from monarch.config.request import Request

NOTIFY = "--notify-fd"


def is_launched(words: Sequence[str]) -> bool:
    """Return whether these arguments are those of a launcher."""
    own = words[: words.index("--")] if "--" in words else ()
    return NOTIFY in own and words[0] == "agent"


def serve_launcher(words: Sequence[str]) -> NoReturn:
    """Run the agent of a launcher.

    Args:
        words: `agent`, options with their values, `--`, and the arguments of `run`.
            The fingerprint of the options is given, in hexadecimal digits, if nothing
            names the job.
    """
    end = words.index("--")
    own = dict(zip(words[1:end:2], words[2:end:2], strict=True))
    request = forked(partial(_request, words[end + 1 :]))

    from monarch.agent.control import Notifier
    from monarch.agent.main import serve

    options = own.get("--options-fingerprint")
    code = serve(
        Path(own["--run-dir"]),
        Notifier(int(own[NOTIFY])),
        request,
        fingerprint=None if options is None else int(options, 16),
    )
    logging.shutdown()
    # Threads of a scan may hang on a dead origin and block an ordinary exit.
    os._exit(code)


def _request(argv: Sequence[str]) -> Request:
    """Return what a command line of `monarch run` asks for."""
    from monarch.cli.run import parse_run_argv
    from monarch.config.loading import load_request

    options, command = parse_run_argv(argv)
    return load_request(options, command, os.environ).detached()
