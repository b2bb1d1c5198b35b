"""How `monarch run` ends: like the program, or with a line that states the reason."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.launcher import HEALTHY, Launch, Step

pytest_plugins = ["support.launcher_fixtures"]

DEADLY = [
    number
    for number in sorted(signal.valid_signals())
    if number
    not in {
        *(signal.SIGCHLD, signal.SIGCONT, signal.SIGSTOP, signal.SIGTSTP),
        *(signal.SIGTTIN, signal.SIGTTOU, signal.SIGURG, signal.SIGWINCH),
    }
]


@pytest.mark.parametrize("code", [0, 1, 2, 7, 125, 126, 127, 255])
def test_exit_code_is_that_of_the_program(launch: Launch, code: int) -> None:
    done = launch.run("sh", "-c", f"exit {code}")

    assert done.returncode == code
    assert done.stderr.decode().splitlines() == [
        "monarch: staging nothing to ram",
        "the report",
    ]


@pytest.mark.parametrize("number", DEADLY)
def test_death_by_signal_is_that_of_the_program(launch: Launch, number: int) -> None:
    words = ["sh", "-c", f"kill -{int(number)} $$"]
    done = launch.run("-q", *words, cwd=launch.folder)

    assert done.returncode == -number


def test_signal_ignored_by_the_caller_kills_the_launcher_like_its_program(
    launch: Launch,
) -> None:
    program = (
        "import signal, os; signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)"
    )

    def ignore() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    done = launch.run("-q", sys.executable, "-c", program, preexec_fn=ignore)

    assert done.returncode == -signal.SIGTERM


def test_ignored_child_signal_does_not_lose_the_exit_code(launch: Launch) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    done = launch.run("-q", "sh", "-c", "exit 9", preexec_fn=ignore)

    assert done.returncode == 9


def test_launcher_dumps_no_core(launch: Launch, tmp_path: Path) -> None:
    def allow_cores() -> None:
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (most, most))

    words = ["sh", "-c", "ulimit -c 0; kill -ABRT $$"]
    done = launch.run("-q", *words, cwd=tmp_path, preexec_fn=allow_cores)

    assert done.returncode == -signal.SIGABRT
    assert not list(tmp_path.glob("core*"))


def test_quiet_prints_nothing(launch: Launch) -> None:
    done = launch.run("--quiet", "echo", "hello")

    assert (done.stdout, done.stderr) == (b"hello\n", b"")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--nope", "true"], "no such option: --nope (see monarch run --help)"),
        (
            ["--quiett", "true"],
            "no such option: --quiett, did you mean --quiet? (see monarch run --help)",
        ),
        (
            ["--daat=1", "true"],
            "no such option: --daat (see monarch run --help)",
        ),
        (["-x", "true"], "no such option: -x (see monarch run --help)"),
        (["-qx", "true"], "no such option: -x (see monarch run --help)"),
        (["--strict=yes", "true"], "option --strict takes no value"),
        (["--job"], "option --job needs a value"),
        (["-c"], "option --config needs a value"),
        (["--job", "", "true"], "option --job needs a name that is not empty"),
        ([], "no program given: monarch run [OPTIONS] [--] PROGRAM [ARG]..."),
        (["--"], "no program given: monarch run [OPTIONS] [--] PROGRAM [ARG]..."),
        (["-q", "--"], "no program given: monarch run [OPTIONS] [--] PROGRAM [ARG]..."),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    launch: Launch, words: list[str], line: str
) -> None:
    done = launch.run(*words)

    assert done.returncode == 2
    assert done.stderr.decode() == f"monarch: {line}\n"
    assert not launch.run_root.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["-c", "file", "--set", "a=b", "--data=/d", "--tier", "ram:1GiB", "--strict"],
        ["-cfile", "--wait", "-q"],
        ["-qc", "file", "--report=r.json", "--index", "i"],
        ["--job", "--", "--wait", "--strict"],
    ],
)
@pytest.mark.parametrize("end", [[], ["--"]])
def test_options_end_at_the_first_word_that_is_not_an_option(
    launch: Launch, words: list[str], end: list[str]
) -> None:
    done = launch.run(*words, *end, "echo", "-q", "--", "--nope")

    assert done.stdout == b"-q -- --nope\n"
    agent = launch.events("start")[0]["argv"]
    assert agent[agent.index("--") + 1 :] == [
        *words,
        *end,
        "echo",
        "-q",
        "--",
        "--nope",
    ]


def test_command_not_found_is_127_before_an_agent_starts(launch: Launch) -> None:
    done = launch.run("no-such-command")

    assert done.returncode == 127
    assert done.stderr == b"monarch: no-such-command: command not found\n"
    assert not launch.run_root.exists()


@pytest.mark.parametrize("name", ["./missing", "", "/etc/passwd/x"])
def test_missing_path_is_127(launch: Launch, name: str) -> None:
    assert launch.run(name).returncode == 127


def test_file_that_is_not_executable_is_126(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("hello")

    in_path = launch.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    assert launch.run(str(tmp_path / "plain")).returncode == 126
    assert launch.run("plain", env=in_path).returncode == 126
    assert launch.run(str(tmp_path)).returncode == 126


def test_missing_interpreter_is_127(launch: Launch, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)

    assert launch.run(str(script)).returncode == 127


@pytest.mark.parametrize("join", [False, True])
def test_script_without_interpreter_line_is_run_by_the_shell(
    launch: Launch, tmp_path: Path, join: bool
) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$0" "$@"; exit 5\n')
    script.chmod(0o755)
    words = [launch.command, "run", "-q"] if join else []

    done = launch.run("-q", *map(str, words), str(script), "a b", "")

    assert done.returncode == 5
    assert done.stdout == f"{script} a b \n".encode()


def test_path_is_searched_as_a_shell_does(launch: Launch, tmp_path: Path) -> None:
    for folder, mode in {"one": 0o644, "two": 0o755}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").write_text(f"#!/bin/sh\necho {folder}\n")
        (tmp_path / folder / "tool").chmod(mode)
    path = f"/nowhere:{tmp_path}/one:{tmp_path}/two"

    named = launch.run("-q", "tool", env=launch.environ | {"PATH": path})
    here = launch.run(
        "-q", "tool", cwd=tmp_path / "two", env=launch.environ | {"PATH": "/nowhere:"}
    )

    assert named.stdout == here.stdout == b"two\n"


def test_arguments_arrive_byte_for_byte(launch: Launch, show: Path) -> None:
    words: list[str | bytes] = [
        "",
        " ",
        "a\nb",
        "--",
        b"\xff\xfe",
        "$(x)",
        "y" * 100000,
    ]

    plain = subprocess.run([show, *words], capture_output=True, env={})
    ours = launch.run("-q", str(show), *words)

    def arguments(text: bytes) -> bytes:
        return text[text.index(b"arg <") : text.rindex(b"y>\n")]

    assert arguments(ours.stdout) == arguments(plain.stdout)


@pytest.mark.parametrize(
    ("name", "nodes", "warned"),
    [
        ("srun", "4", True),
        ("srun", "1", False),
        ("srun", "", False),
        ("cp", "4", False),
    ],
)
def test_multi_node_launcher_as_the_program_is_one_warning(
    launch: Launch, tmp_path: Path, name: str, nodes: str, warned: bool
) -> None:
    program = tmp_path / name
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)

    done = launch.run(
        "-q", str(program), env=launch.environ | {"SLURM_JOB_NUM_NODES": nodes}
    )

    assert done.returncode == 3
    text = b"monarch: srun starts programs on other nodes too"
    assert done.stderr.startswith(text) is warned


def test_disabled_runs_the_program_at_once(launch: Launch) -> None:
    environ = launch.environ | {"MONARCH_STAGING_DISABLE": "1"}

    done = launch.run("sh", "-c", "echo $LD_PRELOAD; exit 3", env=environ)

    told = (
        b"monarch: MONARCH_STAGING_DISABLE is set: the program runs without staging\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, b"\n", told)
    assert not launch.run_root.exists()
    assert launch.run("-q", "true", env=environ).stderr == b""


@pytest.mark.parametrize(
    "words", [[], ["--version"], ["report", "a b", "-q"], ["run", "-q", "--help"]]
)
def test_other_verbs_run_in_python(launch: Launch, words: list[str]) -> None:
    environ = launch.environ | {
        "MONARCH_STAGING_RUN": "/run-dir",
        "LD_PRELOAD": f"/run-dir/shim.so:{launch.layout['shim']}",
    }

    done = subprocess.run([launch.command, *words], capture_output=True, env=environ)

    expected = ["-I", "-m", "monarch", *words]
    assert done.stdout.decode() == "".join(f"<{word}>" for word in expected) + (
        f"preload={launch.layout['shim']}\n"
    )


def test_verb_without_python_is_one_line(launch: Launch) -> None:
    environ = launch.environ | {"MONARCH_STAGING_PYTHON": "/no/python"}

    done = subprocess.run([launch.command, "report"], capture_output=True, env=environ)

    assert done.returncode == 125
    assert done.stderr.startswith(b"monarch: cannot run Python at /no/python: No such")


def test_long_and_many_lines_of_the_report_arrive(launch: Launch) -> None:
    flood = "".join(f"say line {i} {'x' * 200}\n" for i in range(5000))
    steps = [step for step in HEALTHY if step != ["write", "say the report\n"]]
    steps[-1:-1] = [["write", flood], ["write", f"say {'y' * 100000}\nsay end\n"]]
    launch.script(steps)

    lines = launch.run("true").stderr.decode().splitlines()

    assert lines[1:5001] == [f"line {i} {'x' * 200}" for i in range(5000)]
    assert set(lines[5001]) == {"y"}
    assert len(lines[5001]) > 16000
    assert lines[5002:] == ["end"]


def test_agent_that_prints_too_much_does_not_block_the_program(launch: Launch) -> None:
    steps: list[Step] = [*HEALTHY]
    steps[5:5] = [["write", "warn " + "z" * 300 + "\n"]] * 1000
    launch.script(steps)

    done = launch.run("sh", "-c", "exit 4")

    assert done.returncode == 4
    assert done.stderr.count(b"monarch: zzz") == 1000
