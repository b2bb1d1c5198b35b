"""The agent that `monarch run` has started.

The configuration is validated in a forked process while this one imports the rest: the
libraries that validate values would take half of the start, and are not needed
afterwards. Modules that both need are imported before the fork, so they cost once.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

if TYPE_CHECKING:
    from monarch.config.request import Request

NOTIFY = "--notify-fd"
SHARED: Final = (
    *("decimal", "inspect", "secrets", "socket", "tempfile"),
    *("monarch.config.request", "monarch.hostlist", "monarch.native.names"),
    "monarch.units",
)
"""The modules that both processes need and that take long to import."""
T = TypeVar("T")


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
    with lasting():
        for name in SHARED:
            import_module(name)
        request = forked(partial(_request, words[end + 1 :]))
        import_spared()

        import logging

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


@contextmanager
def lasting() -> Iterator[None]:
    """Exclude objects that are made here, such as modules, from garbage collection."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def import_spared() -> None:
    """Import libraries without the parts that an agent does not need."""
    # One thread: each costs a part of the start, and only multiplies matrices.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import numpy  # noqa: F401

    # Agents authenticate each other without TLS; asyncio works without it if it is not
    # installed.
    sys.modules["ssl"] = None  # type: ignore[assignment]
    import asyncio  # noqa: F401

    del sys.modules["ssl"]


def _request(argv: Sequence[str]) -> Request:
    """Return the request of a command line of `monarch run`."""
    environ = dict(os.environ)
    # Pydantic searches the metadata of all installed packages for plugins.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"

    from monarch.config.loading import load_request
    from monarch.config.run_options import parse_run_argv

    options, command = parse_run_argv(argv)
    return load_request(options, command, environ).detached()


def forked(step: Callable[[], T]) -> Callable[[], T]:
    """Start a step in a forked process; return a function that waits for its result.

    The result or the error is passed by pickle. There must be no other thread yet.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        _send_outcome(step, writing)
    os.close(writing)

    def wait() -> T:
        with open(reading, "rb") as pipe:
            content = pipe.read()
        os.waitpid(pid, 0)
        if not content:
            raise ChildProcessError("a forked step has ended without a result")
        result, error = pickle.loads(content)
        if error is not None:
            raise error
        outcome: T = result
        return outcome

    return wait


def _send_outcome(step: Callable[[], Any], writing: int) -> NoReturn:
    """Write the outcome of a step, and end the process."""
    outcome: tuple[Any, BaseException | None]
    try:
        outcome = step(), None
    except BaseException as error:
        outcome = None, error
    with open(writing, "wb") as pipe:
        pipe.write(pickle.dumps(outcome))
    os._exit(0)
