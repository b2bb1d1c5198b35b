"""Programs in containers are served with the output of `monarch env` alone."""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from monarch.doctor.shim import check_root
from support.dataset import Dataset
from support.roots import make_musl_root, make_root
from support.tier_codecs import in_blocks


@pytest.fixture
def root(tmp_path: Path, tool: Callable[[str], str]) -> Path:
    """The root of a container in which bwrap can run programs."""
    tool("bwrap")
    return make_root(tmp_path / "image", "/bin/sh", "/bin/cat", "/usr/bin/sha256sum")


@pytest.fixture
def job(
    monarch_command: Path, run_root: Path, tmp_path: Path, dataset: Dataset
) -> Callable[..., str]:
    """A function that runs a shell script as a job; returns what it and Monarch say."""
    (tmp_path / "ssd").mkdir()
    path = f"{monarch_command.parent}:{os.environ['PATH']}"

    def run(
        script: str, tier: str = f"ssd:64MiB:{tmp_path}/ssd", **environ: str
    ) -> str:
        words = [str(monarch_command), "run", "--data", str(dataset.root)]
        done = subprocess.run(
            [*words, "--tier", tier, "--", "sh", "-c", script],
            env=os.environ | {"PATH": path} | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=100,
        )
        said: str = done.stdout
        return said

    return run


def reader(dataset: Dataset) -> str:
    return shlex.join(["/bin/sha256sum", *map(str, dataset.paths)])


def bwrap(root: Path, options: str, program: str) -> str:
    return f'eval "bwrap --bind {root} / --dev /dev {options} {program}"'


def served_opens(said: str) -> int:
    """The opens that got a copy, by the rows of the summary: also where they waited."""
    sources = r"ssd|transit pool|decoded while .*?|staged while the open waited"
    rows = re.findall(rf"(?m)^  (?:{sources}) +([\d,]+) ", said)
    return sum(int(count.replace(",", "")) for count in rows)


def assert_served(said: str, dataset: Dataset) -> None:
    """All files: for streams, as sha256sum reads them, packed ones are made whole."""
    for digest in dataset.digests.values():
        assert digest in said
    assert "not active in" not in said
    assert served_opens(said) == len(dataset.paths)


def test_program_in_a_container_of_bwrap_is_served_with_the_output_of_env(
    job: Callable[..., str], root: Path, dataset: Dataset
) -> None:
    said = job(bwrap(root, "--clearenv $(monarch env --bwrap)", reader(dataset)))

    assert_served(said, dataset)


def without_proc(root: Path, dataset: Dataset) -> str:
    """A shell command that reads all files in a container that lacks /proc."""
    options = "$(monarch env --bwrap | sed 's,--proc /proc,,')"
    return bwrap(root, options, f"/bin/sh -c '{reader(dataset)}; exit 0'")


@pytest.mark.root
def test_inactive_program_in_a_container_without_proc_is_reported(
    job: Callable[..., str], root: Path, dataset: Dataset
) -> None:
    """Without /proc it cannot tell whether it has the rights that the agent has."""
    said = job(without_proc(root, dataset))

    for digest in dataset.digests.values():
        assert digest in said
    assert "not active in" in said
    assert "without /proc" in " ".join(said.split())


def test_program_of_a_user_without_privileges_needs_no_proc_to_be_served(
    job: Callable[..., str], root: Path, dataset: Dataset
) -> None:
    """An agent without capabilities has none that the program could lack."""
    if os.geteuid() == 0:
        pytest.skip("root has capabilities")

    said = job(without_proc(root, dataset))

    assert_served(said, dataset)


def test_program_in_another_pid_namespace_is_served(
    job: Callable[..., str], root: Path, dataset: Dataset
) -> None:
    options = "--unshare-pid $(monarch env --bwrap)"

    said = job(bwrap(root, options, reader(dataset)))

    assert_served(said, dataset)


def test_variables_for_apptainer_suffice_for_a_container(
    job: Callable[..., str],
    root: Path,
    dataset: Dataset,
    tmp_path: Path,
) -> None:
    """Apptainer itself is played by bwrap, which gets nothing but its variables."""
    script = tmp_path / "apptainer.sh"
    script.write_text(
        "set --\n"
        'for path in $(echo "$APPTAINER_BIND" | tr , " "); do\n'
        '  set -- "$@" --bind "$path" "$path"\n'
        "done\n"
        f'exec bwrap --clearenv --bind {root} / --dev /dev --proc /proc "$@" '
        '--setenv LD_PRELOAD "$APPTAINERENV_LD_PRELOAD" '
        '--setenv MONARCH_STAGING_RUN "$APPTAINERENV_MONARCH_STAGING_RUN" '
        f"{reader(dataset)}\n"
    )

    said = job(f'eval "$(monarch env --apptainer)"; sh {script}')

    assert_served(said, dataset)


def test_binds_that_apptainer_has_already_are_kept(
    job: Callable[..., str], dataset: Dataset, run_root: Path, tmp_path: Path
) -> None:
    said = job(
        'eval "$(monarch env --apptainer)"; echo "$APPTAINER_BIND"',
        APPTAINER_BIND="/more",
    )

    assert f"{run_root},{tmp_path}/ssd,{dataset.root},/more\n" in said


def test_options_for_docker_give_the_container_the_rights_of_the_user(
    job: Callable[..., str], dataset: Dataset, run_root: Path, tmp_path: Path
) -> None:
    said = job("for word in $(monarch env --docker); do echo $word; done")

    words = set(said.splitlines())
    assert words >= {
        "--ipc=host",
        "--pid=host",
        f"--user={os.geteuid()}:{os.getegid()}",
        f"--volume={run_root}:{run_root}",
        f"--volume={tmp_path}/ssd:{tmp_path}/ssd",
        f"--volume={dataset.root}:{dataset.root}",
    }
    assert any(word.startswith("--env=LD_PRELOAD=") for word in words)
    assert ("--cap-add=DAC_READ_SEARCH" in words) == (os.geteuid() == 0)


def test_outside_of_a_job_env_leaves_the_run_directory_to_the_shell(
    monarch_command: Path, dataset: Dataset
) -> None:
    words = [str(monarch_command), "env", "--bwrap", "--data", str(dataset.root)]

    done = subprocess.run(words, capture_output=True, text=True, check=True)

    assert f"--bind {dataset.root} {dataset.root}" in done.stdout
    assert '--setenv LD_PRELOAD "$MONARCH_STAGING_RUN/shim.so"' in done.stdout
    assert done.stderr.startswith("monarch: no job here: ")


def test_env_without_a_container_program_is_refused(monarch_command: Path) -> None:
    done = subprocess.run([monarch_command, "env"], capture_output=True, text=True)

    assert done.returncode == 2
    assert "--apptainer, --docker or --bwrap" in done.stderr


def test_program_in_a_container_with_musl_is_served(
    job: Callable[..., str],
    dataset: Dataset,
    tmp_path: Path,
    tool: Callable[[str], str],
    tier_codec: str,
) -> None:
    """As in images of Alpine."""
    tool("bwrap")
    root = make_musl_root(tmp_path / "image", tool("musl-gcc"))
    program = shlex.join(["/bin/sh", *map(str, dataset.paths)])

    said = job(bwrap(root, "$(monarch env --bwrap)", program))

    (found,) = check_root(root)
    assert "ld-musl" in found.text
    assert f"read {dataset.size_bytes}\n" in said
    assert served_opens(said) == len(dataset.paths) - in_blocks(tier_codec)


@pytest.mark.root
def test_program_in_a_chroot_is_served_where_proc_and_the_datasets_are_mounted(
    job: Callable[..., str],
    root: Path,
    dataset: Dataset,
    run_root: Path,
    tmp_path: Path,
) -> None:
    mounts = "".join(
        f"mkdir -p {root}{place}; mount --rbind {place} {root}{place}; "
        for place in ("/proc", run_root, tmp_path / "ssd", dataset.root)
    )
    inside = f"{mounts} chroot {root} {reader(dataset)}"

    said = job(f"unshare -m sh -c {shlex.quote(inside)}")

    assert_served(said, dataset)


# -- the command `monarch doctor` ---------------------------------------------------


def doctor(command: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [str(command), "doctor", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


def test_doctor_exits_with_0_if_nothing_prevents_staging(
    monarch_command: Path, dataset: Dataset, tmp_path: Path
) -> None:
    image = make_root(tmp_path / "image", "/bin/sh")
    words = ["--data", str(dataset.root), "--root", str(image), "--tier", "ram:1MiB"]

    done = doctor(monarch_command, *words)

    assert (done.returncode, done.stderr) == (0, "")
    assert ": Monarch can stage here; " in done.stdout.splitlines()[0]
    assert max(map(len, done.stdout.replace(str(tmp_path), "").splitlines())) <= 80


def test_doctor_exits_with_1_if_something_prevents_staging(
    monarch_command: Path, tmp_path: Path
) -> None:
    config = tmp_path / "job.yaml"
    config.write_text(
        f"tiers: [{{name: ssd, kind: ssd, path: {tmp_path}/none, capacity: 1MiB}}]\n"
    )

    done = doctor(monarch_command, "-c", str(config), "--json")

    report = json.loads(done.stdout)
    assert (done.returncode, report["healthy"]) == (1, False)
    (found,) = [one for one in report["findings"] if one["level"] == "prevents"]
    assert found["check"] == "tiers[0].path"
    assert found["fix"] == "choose an existing directory"


def test_doctor_exits_with_2_for_an_unusable_configuration(
    monarch_command: Path,
) -> None:
    done = doctor(monarch_command, "--set", "fil.enabled=true")

    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean" in done.stderr


def test_doctor_leaves_nothing_behind(
    monarch_command: Path, tmp_path: Path, run_root: Path, state_home: Path
) -> None:
    tier = tmp_path / "ssd"
    tier.mkdir()

    doctor(monarch_command, "--tier", f"ssd:1MiB:{tier}", "--data", str(tmp_path))

    assert [*tier.iterdir(), *run_root.iterdir()] == []
    assert [*state_home.rglob("*")] == [state_home / "monarch-staging"]
