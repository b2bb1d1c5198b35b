"""Tests of monarch.cli: verbs, errors, exit codes, and a light start."""

import importlib.util
import os
import subprocess
import sys

import click
import pytest

from monarch import __version__, cli
from monarch.cli import VERBS, Verb, main
from monarch.errors import ConfigError, MonarchError


@pytest.fixture
def verb(monkeypatch):
    """A verb of the table with an action set by a test."""

    def add(action):
        command = click.Command("probe", callback=action)
        module = type(sys)("monarch_probe")
        module.probe = command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "monarch_probe", module)
        monkeypatch.setitem(VERBS, "probe", Verb("monarch_probe:probe", "Probe."))

    return add


def raises(error):
    def action():
        raise error

    return action


def python(*argv, code=None, **kwargs):
    command = [
        sys.executable,
        "-P",
        *(["-c", code] if code else ["-m", "monarch"]),
        *argv,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **kwargs)


def test_error_of_monarch_is_one_line_and_its_exit_code(verb, capsys):
    verb(raises(MonarchError("the tier has no room")))

    assert main(["probe"]) == 125
    assert capsys.readouterr().err == "monarch: the tier has no room\n"


def test_error_of_the_configuration_is_one_line_for_each_fault(verb, capsys):
    verb(raises(ConfigError(("a:1:1: x", "a:2:1: y"))))

    assert main(["probe"]) == 2
    assert capsys.readouterr().err == "monarch: a:1:1: x\nmonarch: a:2:1: y\n"


def test_negative_answer_is_exit_status_1(verb):
    verb(lambda: click.get_current_context().exit(1))

    assert main(["probe"]) == 1


def test_programming_error_is_not_hidden(verb):
    verb(raises(ZeroDivisionError("ours")))

    with pytest.raises(ZeroDivisionError):
        main(["probe"])


def test_interrupt_ends_as_the_shell_expects(verb):
    verb(raises(KeyboardInterrupt()))

    assert main(["probe"]) == 130


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["rum"], "unknown verb 'rum'; did you mean 'run'? (see `monarch --help`)"),
        (["xyzzy"], "unknown verb 'xyzzy' (see `monarch --help`)"),
        (["--bogus"], "No such option '--bogus' (see `monarch --help`)"),
        (["version", "--bogus"], "(see `monarch version --help`)"),
        (["version", "more"], "(see `monarch version --help`)"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_status_2(argv, line, capsys):
    assert main(argv) == 2

    error = capsys.readouterr().err
    assert error.startswith("monarch: ")
    assert line in error
    assert error.count("\n") == 1


def test_no_arguments_print_the_help(capsys):
    assert main([]) == 2
    assert "Verbs:" in capsys.readouterr().err


def test_help_lists_every_verb(capsys):
    assert main(["--help"]) == 0

    out = capsys.readouterr().out
    for name in VERBS:
        assert f"  {name} " in out
    assert "-h, --help" in out


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_of_the_table_exists_and_has_help(name, capsys):
    assert main([name, "--help"]) == 0
    assert f"Usage: monarch {name}" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["version"], ["--version"]])
def test_version_is_printed(argv, capsys):
    assert main(argv) == 0
    assert capsys.readouterr().out == f"monarch {__version__}\n"


def test_start_is_light():
    heavy = ["pydantic", "numpy", "yaml", "psutil", "rich", "asyncio", "ctypes"]
    code = (
        "import sys; from monarch.cli import main; main(['--help']);"
        f"sys.exit(any(m in sys.modules for m in {heavy}))"
    )

    result = python(code=code)

    assert result.returncode == 0, result.stderr


def test_options_of_run_are_printed_without_importing_the_configuration_code():
    code = (
        "import sys; from monarch.cli import main; main(['run', '--help']);"
        "sys.exit('pydantic' in sys.modules)"
    )

    assert python(code=code).returncode == 0


PRINTS = """
import sys, types, click
from monarch import cli
probe = types.ModuleType("probe")
probe.probe = click.Command("probe", callback=lambda: print("words"))
sys.modules["probe"] = probe
cli.VERBS["probe"] = cli.Verb("probe:probe", "Probe.")
sys.exit(cli.main(["probe"]))
"""
ECHOES = (
    "import sys; from monarch.cli import main; sys.exit(main(['config', 'schema']))"
)


@pytest.mark.parametrize("code", [ECHOES, PRINTS], ids=["echoes", "prints"])
def test_closed_output_pipe_ends_the_verb_silently(code):
    read_end, write_end = os.pipe()
    os.close(read_end)

    result = subprocess.run(
        [sys.executable, "-P", "-c", code],
        stdout=write_end,
        stderr=subprocess.PIPE,
        timeout=60,
    )

    os.close(write_end)
    assert result.stderr == b""
    assert result.returncode == 141


def run_code(code, **kwargs):
    return subprocess.run(
        [sys.executable, "-P", "-c", code], stderr=subprocess.PIPE, timeout=60, **kwargs
    )


@pytest.mark.parametrize("code", [ECHOES, PRINTS], ids=["echoes", "prints"])
def test_full_output_device_is_one_line_and_a_failure(code):
    with open("/dev/full", "wb") as full:
        result = run_code(code, stdout=full)

    said = b"monarch: cannot write the output: No space left on device\n"
    assert (result.stderr, result.returncode) == (said, 125)


@pytest.mark.parametrize("code", [ECHOES, PRINTS], ids=["echoes", "prints"])
def test_closed_standard_output_is_no_failure(code):
    result = run_code(code, preexec_fn=lambda: os.close(1))

    assert (result.stderr, result.returncode) == (b"", 0)


@pytest.mark.parametrize(("no_color", "colored"), [("1", False), ("", True)])
def test_no_color_switches_colors_off_on_a_terminal(
    verb, no_color, colored, monkeypatch
):
    monkeypatch.setenv("NO_COLOR", no_color)
    seen = []
    verb(lambda: seen.append(click.get_current_context().color))

    main(["probe"])

    assert seen == [None if colored else False]


def test_module_runs_as_the_command_does():
    result = python("version")

    assert result.stdout == f"monarch {__version__}\n"
    assert result.returncode == 0
    assert importlib.util.find_spec("monarch.__main__") is not None
    assert callable(cli.main)
