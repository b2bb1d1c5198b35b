"""The source archive and the wheel: their contents, and that they install and run."""

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

import pytest

from monarch import __version__

ROOT = Path(__file__).parents[2]
SITE = Path(sys.prefix) / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
NAME = f"monarch_staging-{__version__}"
NATIVE = {
    "monarch/native/libmonarch.so",
    "monarch/native/libmonarch_shim.so",
    f"{NAME}.data/scripts/monarch",
}
SHARED = {
    "bash-completion/completions/monarch",
    "fish/vendor_completions.d/monarch.fish",
    "man/man1/monarch.1",
    "man/man1/monarch-run.1",
    "zsh/site-functions/_monarch",
}
BUILD = """
import sys
from scikit_build_core.build import {hook}
{hook}(sys.argv[1])
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


def build(hook: str, source: Path, to: Path) -> None:
    """Call a hook of the build's backend, as pip and `build` do."""
    to.mkdir()
    command = [sys.executable, "-P", "-c", BUILD.format(hook=hook), str(to)]
    env = {**os.environ, "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=source, env=env, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if "PYTEST_XDIST_WORKER" in os.environ:
        # One worker builds all, for all tests of this file; a second one fails here.
        (tmp_path_factory.getbasetemp().parent / "sdist").mkdir()
    folder = tmp_path_factory.mktemp("sdist") / "to"
    build("build_sdist", ROOT, folder)
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that the C compiler of this machine has made of the source archive."""
    source = tmp_path_factory.mktemp("source")
    # Early releases of Python 3.11 have no archive filter.
    subprocess.run(["tar", "-xf", str(sdist), "-C", str(source)], check=True)
    folder = tmp_path_factory.mktemp("wheel") / "to"
    build("build_wheel", source / NAME, folder)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment of a Python that has the wheel, and no other Monarch."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(folder, with_pip=False)
    words = ["--no-deps", "--no-index", "--quiet", str(wheel)]
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python")]
    subprocess.run([*pip, "install", *words], check=True, timeout=120)
    # The dependencies are those of this environment, after the clean packages.
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "needs.pth").write_text(f"{SITE}\n")
    return folder


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"{NAME}.dist-info/METADATA").decode()
    return HeaderParser().parsestr(text)


def test_source_archive_has_all_that_a_build_and_the_tests_need(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    if not (ROOT / ".git").exists():
        pytest.skip("needs the repository")
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True)
    wanted = {name for name in tracked.split() if not name.startswith((".ci", ".git"))}

    assert wanted - names == set()
    assert not [name for name in names if name.endswith((".so", ".pyc", ".o"))]


def test_wheel_is_for_any_python_3_of_one_platform(wheel: Path) -> None:
    assert wheel.name.startswith(f"{NAME}-py3-none-linux_")


def test_wheel_has_the_native_parts_and_no_source_and_no_test(wheel: Path) -> None:
    names = names_in(wheel)
    tops = {name.partition("/")[0] for name in names}
    endings = {Path(name).suffix for name in names if name.startswith("monarch/")}

    assert names >= NATIVE
    assert tops == {"monarch", f"{NAME}.data", f"{NAME}.dist-info"}
    assert endings <= {
        ".py",
        ".so",
        ".md",
        ".svg",
        ".typed",
        ".html",
        ".css",
        ".json",
        ".j2",
    }
    assert not [name for name in names if "test" in name or "CMake" in name]


def test_wheel_carries_manual_pages_completion_and_reference(wheel: Path) -> None:
    names = names_in(wheel)

    assert {f"{NAME}.data/data/share/{name}" for name in SHARED} <= names
    assert "monarch/pages/configuration.md" in names
    assert not [name for name in names if name.startswith("monarch/pages/share")]


def test_wheel_has_complete_metadata(wheel: Path) -> None:
    head = metadata(wheel)
    classifiers = head.get_all("Classifier") or []

    assert "monarch/py.typed" in names_in(wheel)
    assert "Typing :: Typed" in classifiers
    assert head["Requires-Python"] == ">=3.11"
    assert head["License-Expression"] == "Apache-2.0"
    assert head.get_all("Project-URL")
    minor = f"Programming Language :: Python :: 3.{sys.version_info.minor}"
    assert minor in classifiers


def test_wheel_stages_in_a_clean_environment(
    clean: Path, tmp_path: Path, dataset_of_one: Path
) -> None:
    report = tmp_path / "report.json"
    words = ["--data", str(dataset_of_one), "--report", str(report)]
    words += ["--", "cat", str(dataset_of_one / "one")]
    done = subprocess.run(
        [str(clean / "bin/monarch"), "run", *words],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == "bytes"
    assert "monarch: active in 1 of 1 process" in done.stderr
    assert json.loads(report.read_text())["schema"]


def test_clean_environment_has_its_own_pages(clean: Path) -> None:
    assert not [name for name in SHARED if not (clean / "share" / name).is_file()]

    shown = subprocess.check_output(
        [clean / "bin/monarch", "help", "fill.bandwidth"], text=True, timeout=60
    )

    assert shown.startswith("- `fill.bandwidth` (default `unlimited`)")


@pytest.fixture
def dataset_of_one(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "one").write_text("bytes")
    return folder
