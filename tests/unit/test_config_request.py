"""A configuration is validated in another process, and arrives unchanged."""

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
from monarch.launched import SHARED, forked

# Modules that read options, validate values, contact other nodes or print for people.
UNNEEDED = {
    *(
        "annotated_types",
        "click",
        "email",
        "importlib.metadata",
        "monarch.agent.cluster",
    ),
    *("monarch.cli", "monarch.cluster.stale_files", "monarch.config.loading"),
    *("monarch.config.schema", "monarch.mpi", "monarch.peers.mesh"),
    *("monarch.placement.forecast", "monarch.report.model", "pydantic"),
    *("pydantic_core", "rich", "ssl", "statistics", "typing_extensions", "yaml"),
    *("zoneinfo", "zstandard"),
}
AGENT = (
    "import os\n"
    "from monarch.launched import import_spared\n"
    "import_spared()\n"
    "from monarch.agent.main import serve\n"
    "from monarch.agent.control import Notifier\n"
)


def output_of(script: str) -> list[str]:
    """The words that a Python prints, which has imported nothing before."""
    line = [sys.executable, "-P", "-c", script]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return done.stdout.split()


def imported_for(*options: str) -> set[str]:
    """The modules that are imported to validate a configuration."""
    script = (
        "import sys\n"
        "from monarch.launched import _request\n"
        f"_request({[*options, '--', 'true']!r})\n"
        "print(*sys.modules)\n"
    )
    return set(output_of(script))


def test_an_agent_imports_nothing_that_only_its_start_needs() -> None:
    imported = set(output_of(f"{AGENT}import sys; print(*sys.modules)"))

    assert {"monarch.agent.agent", "numpy", "asyncio"} <= imported
    assert not UNNEEDED & imported


def test_libraries_make_no_threads_in_an_agent() -> None:
    assert output_of(f"{AGENT}print(len(os.listdir('/proc/self/task')))") == ["1"]


def test_imported_objects_are_exempt_from_garbage_collection() -> None:
    script = (
        "import gc\n"
        "from monarch.launched import lasting\n"
        "with lasting():\n"
        "    import decimal\n"
        "    print(gc.isenabled())\n"
        "seen = any(one is decimal.Decimal for one in gc.get_objects())\n"
        "print(gc.isenabled(), seen)\n"
    )
    assert output_of(script) == ["False", "True", "False"]


def test_modules_that_asyncio_does_not_need_can_be_imported_later() -> None:
    assert output_of(f"{AGENT}import ssl; print(ssl.__name__)") == ["ssl"]


def test_options_are_validated_without_importing_click_or_yaml() -> None:
    spared = {"click", "monarch.cli", "yaml"}

    plain = imported_for("--data", "/d", "--set", "fill.enabled=false")
    listed = imported_for("--data", "/d", "--set", "hosts=[a, b]")

    assert "pydantic" in plain
    assert not spared & plain
    assert listed & spared == {"yaml"}


def test_installed_packages_are_not_searched_for_plugins() -> None:
    script = (
        "import importlib.metadata as metadata\n"
        "from monarch.launched import _request\n"
        "asked = []\n"
        "for name in ('distributions', 'entry_points'):\n"
        "    setattr(metadata, name, lambda *_, **__: asked.append(1) or ())\n"
        "_request(['--data', '/d', '--', 'true'])\n"
        "print(len(asked))\n"
    )
    assert output_of(script) == ["0"]


def test_modules_imported_before_the_fork_are_needed_on_both_sides() -> None:
    agent = set(output_of(f"{AGENT}import sys; print(*sys.modules)"))

    assert set(SHARED) <= agent
    assert set(SHARED) <= imported_for("--data", "/d")


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


def test_a_request_holds_command_options_and_file(
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


def test_a_forked_step_returns_its_result() -> None:
    wait = forked(lambda: (os.getpid(), [1, 2]))

    pid, numbers = wait()

    assert pid != os.getpid()
    assert numbers == [1, 2]
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)  # already waited for


@pytest.mark.parametrize(
    "error", [ConfigError(("line one", "line two")), UsageError("no"), OSError(5, "x")]
)
def test_a_forked_step_returns_its_error(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        forked(fail)()

    assert str(raised.value) == str(error)
    assert getattr(raised.value, "lines", None) == getattr(error, "lines", None)


def test_a_forked_step_that_crashes_is_an_error() -> None:
    with pytest.raises(ChildProcessError, match="without a result"):
        forked(lambda: os.kill(os.getpid(), 9))()
