"""The summary of a real run."""

import subprocess

import pytest


@pytest.fixture
def summary(monarch_command, run_root, dataset):
    """A function that returns the summary of a shell script run over the dataset."""

    def tell(script: str, *options: str) -> str:
        run = [monarch_command, "run", "--data", dataset.root, *options, "--"]
        done = subprocess.run(
            [*run, "sh", "-c", script],
            cwd=dataset.root,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        # Lines are folded at 80 columns.
        return " ".join(done.stderr.split())

    return tell


def test_a_root_that_a_program_has_changed_is_named(summary, dataset):
    folder = next(path for path in dataset.root.iterdir() if path.is_dir())

    text = summary(f"chmod 755 {folder.name}; cat */* >/dev/null")

    reason = "is pass-through: a program changed one of its directories"
    assert f" {dataset.root} {reason}, or " in text


def test_every_process_is_counted_once(summary):
    text = summary("cat */* >/dev/null; ls >/dev/null; cat */* >/dev/null")

    assert "monarch: active in 4 of 4 processes; " in text
    assert "not active" not in text


def test_a_program_that_is_left_alone_is_named(summary):
    text = summary("cat */* >/dev/null", "--set", "programs.exclude=[cat]")

    assert "monarch: active in 1 of 2 processes; " in text
    assert (
        "cat (1): static, setuid, excluded, disabled, without /proc or with other "
        "privileges " in text
    )


def test_opens_that_do_not_wait_are_reported_with_both_reasons(summary):
    through = ("--set", "cold_open.mode=through", "--set", "fill.enabled=false")

    text = summary("cat */* >/dev/null", *through)

    assert "opens read the origin without a wait: the file was too large" in text


SPAWNER = """
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    for (int i = 0; i < atoi(argv[1]); i++) {
        if (posix_spawn(NULL, argv[2], NULL, NULL, argv + 2, environ))
            return 1;
        if (i >= 3) /* four at a time */
            wait(NULL);
    }
    while (wait(NULL) > 0)
        ;
    return argc != 4;
}
"""


def compile_c(folder, name, source, *flags):
    """Compiles a program."""
    (folder / f"{name}.c").write_text(source)
    words = ["cc", "-D_GNU_SOURCE", *flags, "-o", folder / name, folder / f"{name}.c"]
    subprocess.run(words, check=True)
    return folder / name


def test_each_short_program_is_counted_once(summary, tmp_path, dataset):
    spawner = compile_c(tmp_path, "spawner", SPAWNER)
    file = next(path for path in dataset.root.rglob("*") if path.is_file())

    text = summary(f"exec {spawner} 4000 /bin/cat {file} >/dev/null")

    assert "monarch: active in 4,001 of 4,001 processes; " in text
    assert "not active" not in text


def test_each_short_program_without_the_shim_is_named(summary, tmp_path):
    spawner = compile_c(tmp_path, "spawner", SPAWNER)
    static = compile_c(tmp_path, "still", "int main(void) { return 0; }", "-static")

    text = summary(f"exec {spawner} 400 {static} x")

    assert f"not active in {static} (400): static" in text


def test_the_space_of_tiny_files_is_reported(summary, dataset):
    for number in range(600):
        (dataset.root / "class-0" / f"{number}.txt").write_text(str(number))
    for path in dataset.paths:
        path.unlink()

    text = summary("cat */* >/dev/null")

    assert (
        " small files: 1.7 KiB use 2.3 MiB of the tiers, because files use whole pages"
        in text
    )
