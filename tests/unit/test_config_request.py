"""A configuration is validated in another process, and arrives as it was."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monarch.config import Config, Loaded, RunOptions, load_request
from monarch.config.request import Request, Values
from monarch.errors import ConfigError, UsageError
from monarch.launched import forked

# What reads options, validates values or is for people: half of the start of an agent.
UNNEEDED = {
    *("annotated_types", "click", "email", "importlib.metadata", "monarch.cli"),
    *("monarch.config.loading", "monarch.config.schema", "monarch.mpi", "pydantic"),
    *("pydantic_core", "rich", "typing_extensions", "yaml", "zoneinfo"),
}


def test_an_agent_imports_nothing_that_only_its_start_needs() -> None:
    script = (
        "import sys\n"
        "from monarch.launched import serve_launcher\n"
        "from monarch.agent.main import serve\n"
        "from monarch.agent.control import Notifier\n"
        "print(*sys.modules)\n"
    )

    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )

    imported = set(done.stdout.split())
    assert {"monarch.agent.agent", "numpy", "asyncio"} <= imported
    assert not UNNEEDED & imported


def request_of(config: Config) -> Request:
    """The request for a configuration, as it arrives in the agent."""
    request = Request(config, "", ("true",), quiet=False, file=None).detached()
    arrived: Request = pickle.loads(pickle.dumps(request))
    return arrived


def assert_same(model: Any, values: Any) -> None:
    """Each value of a section is that of the model, those that are computed too."""
    if isinstance(model, tuple):
        assert isinstance(values, tuple)
        for one, other in zip(model, values, strict=True):
            assert_same(one, other)
        return
    if not hasattr(type(model), "model_fields"):
        assert (values, type(values)) == (model, type(model))
        return
    assert isinstance(values, Values)
    computed = [n for n, one in vars(type(model)).items() if isinstance(one, property)]
    for name in (*type(model).model_fields, *computed):
        assert_same(getattr(model, name), getattr(values, name))


def test_all_values_arrive(load_text: Callable[..., Loaded]) -> None:
    text = (
        "datasets: [{path: /pfs/a, exclude: ['*.tmp']}, {path: /pfs/b}]\n"
        "tiers: [{name: ram, kind: ram, capacity: 40%}]\n"
        "fill: {bandwidth: 200MB/s}\n"
        "retain: 7d\n"
    )
    for config in (Config(), load_text(text).config):
        request = request_of(config)

        assert_same(config, request.config)
    assert request.config.fill.bytes_per_s == 200_000_000


def test_values_cannot_be_set() -> None:
    request = request_of(Config())

    with pytest.raises(AttributeError, match="cannot be set"):
        request.config.fill.enabled = False


def test_a_request_says_what_is_to_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site_file: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("datasets: [{path: /pfs/a}]\n")
    options = RunOptions(config="job.yaml", quiet=True)

    request = load_request(options, ["ls", "-l"], {})

    assert request.command == ("ls", "-l")
    assert request.quiet
    assert request.file == tmp_path / "job.yaml"
    assert '"path":"/pfs/a"' in request.text


# -- forked steps -------------------------------------------------------------------


def test_a_forked_step_gives_its_result() -> None:
    wait = forked(lambda: (os.getpid(), [1, 2]))

    pid, numbers = wait()

    assert pid != os.getpid()
    assert numbers == [1, 2]
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)  # it has been waited for


@pytest.mark.parametrize(
    "error", [ConfigError(("line one", "line two")), UsageError("no"), OSError(5, "x")]
)
def test_a_forked_step_gives_its_error(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        forked(fail)()

    assert str(raised.value) == str(error)
    assert getattr(raised.value, "lines", None) == getattr(error, "lines", None)


def test_a_forked_step_that_crashes_is_an_error() -> None:
    with pytest.raises(ChildProcessError, match="without a result"):
        forked(lambda: os.kill(os.getpid(), 9))()
