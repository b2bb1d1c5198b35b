"""Fixtures and limits that every test shares."""

import faulthandler
import os
import shutil
import signal
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

import pytest

from support import countfs, processes, tier_codecs
from support.countfs import CountFs
from support.dataset import Dataset, make_dataset
from support.tier_codecs import (
    IN_BOTH_MODES,
    PACKED,
    PLAIN,
    is_listed,
    reason_for_plain,
)

pytest_plugins = (
    "support.fixtures",
    "support.shim_fixtures",
)

# pytest-timeout fails a late test and dumps all threads, but needs the interpreter to
# run; a test stuck inside C is ended with the same dump this much later.
STUCK_GRACE_S = 30
SOAK_LIMIT_S = 3600
REAL_STDERR = pytest.StashKey[int]()
# Files whose tests run in one worker, because they share slow fixtures.
TOGETHER = (
    "tests/integration/test_packages.py",
    "tests/native/test_machines.py",
    "tests/packages/test_release.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the switches that scripts/test passes on."""
    parser.addoption("--soak", action="store_true", help="full counts of soak tests")
    parser.addoption("--frameworks", action="store_true", help="large framework tests")
    parser.addoption("--stores", action="store_true", help="tests with real stores")
    parser.addoption("--launchers", action="store_true", help="real Slurm and MPI")
    parser.addoption("--release", action="store_true", help="wheels of a release")
    parser.addoption("--codec", help="of the first tier of all jobs, if not plain")


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the real stderr, because pytest captures descriptor 2 during a test."""
    config.stash[REAL_STDERR] = os.dup(2)
    _restore_signals()


def _restore_signals() -> None:
    """Children would inherit the signals ignored by nohup or a background shell."""
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGINT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Distributes tests one by one, but those of a file in TOGETHER to one worker.

    Marks of xdist_group would do the same, but have no effect with pytest 9.2.
    """
    scheduling = import_module("xdist.scheduler").LoadScopeScheduling(config, log)
    scheduling._split_scope = _scope
    return scheduling


def _scope(nodeid: str) -> str:
    """What goes to one worker as a whole."""
    path = nodeid.partition("::")[0]
    return path if path in TOGETHER else nodeid


def pytest_unconfigure(config: pytest.Config) -> None:
    """Closes what pytest_configure has opened."""
    os.close(config.stash[REAL_STDERR])


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Skips, with its reason, each test whose condition is not met here, and puts the
    slow ones first where workers share the tests."""
    skips = {
        "root": (os.geteuid() == 0, "needs root"),
        "frameworks": (config.getoption("--frameworks"), "needs --frameworks"),
        "stores": (config.getoption("--stores"), "needs --stores"),
        "launchers": (config.getoption("--launchers"), "needs --launchers"),
        "release": (config.getoption("--release"), "needs --release"),
        "long": (_is_soak(config), "needs --soak"),
    }
    for item in items:
        if _is_soak(config) and "soak_count" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(SOAK_LIMIT_S), append=False)
        if _codec_of(item) != PLAIN:
            _judge_packed(item)
        for marker, (met, reason) in skips.items():
            if not met and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
    if hasattr(config, "workerinput"):
        # A slow test at the end would keep one worker busy and the others idle.
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def _judge_packed(item: pytest.Item) -> None:
    """Skips tests that have no meaning with packed Tiers."""
    if why := reason_for_plain(item.nodeid):
        item.add_marker(pytest.mark.skip(reason=f"needs a plain tier: {why}"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Lets the acceptance of plain Tiers hold for packed ones."""
    nodeid, given = metafunc.definition.nodeid, metafunc.config.getoption("--codec")
    if given is None and is_listed(nodeid, IN_BOTH_MODES):
        metafunc.parametrize("tier_codec", (PLAIN, PACKED), indirect=True)


def _codec_of(item: pytest.Item) -> str:
    """The codec of the first Tier of a test's jobs, where it gives none itself."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    return str(params.get("tier_codec", item.config.getoption("--codec") or PLAIN))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Ends the run with a dump of all threads if a test is stuck inside C."""
    limit_s = _limit_s(item)
    if limit_s:
        grace_s = limit_s + STUCK_GRACE_S
        file = item.config.stash[REAL_STDERR]
        faulthandler.dump_traceback_later(grace_s, exit=True, file=file)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _is_soak(config: pytest.Config) -> bool:
    return bool(config.getoption("--soak") or os.environ.get("MONARCH_SOAK"))


def _limit_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    if marker is None:
        return float(item.config.getini("timeout") or 0)
    return float(marker.args[0] if marker.args else marker.kwargs["timeout"])


@pytest.fixture(scope="session")
def packing_python(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """A function that returns an interpreter whose agents pack their first Tier."""
    folder = tmp_path_factory.mktemp("python")
    return lambda codec: tier_codecs.packing_python(folder, codec)


@pytest.fixture
def tier_codec(request: pytest.FixtureRequest) -> str:
    """The codec of the first Tier of this test's jobs, where it gives none itself."""
    return _codec_of(request.node)


@pytest.fixture(autouse=True)
def own_environment(
    monkeypatch: pytest.MonkeyPatch,
    tier_codec: str,
    packing_python: Callable[[str], str],
) -> None:
    """Hides the surrounding job, preloads and configuration from every test."""
    prefixes = ("MONARCH_STAGING_", "SLURM", "PMI", "PMIX_", "OMPI_", "XDG_CONFIG")
    for name in list(os.environ):
        if name.startswith(prefixes) or name == "LD_PRELOAD":
            monkeypatch.delenv(name)
    if tier_codec != PLAIN:
        monkeypatch.setenv(tier_codecs.PYTHON, packing_python(tier_codec))


@pytest.fixture(autouse=True)
def own_umask() -> Iterator[None]:
    """Restores the umask, which a setup in this process makes private."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def run_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The root of run directories of this test, below its own temporary directory."""
    # The default name, because it is in the paths of files decoded from a packed Tier.
    root = tmp_path / "monarch-0"
    root.mkdir(mode=0o700)
    monkeypatch.setenv("MONARCH_STAGING_RUN_DIR", str(root))
    yield root
    processes.kill_agents(f"{root}/")


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory in memory for Tiers: those of jobs of one name are the same one in
    /dev/shm, and tests that run at the same time have jobs of the same name."""
    with tempfile.TemporaryDirectory(prefix="monarch-test-", dir="/dev/shm") as place:
        yield Path(place)


@pytest.fixture(scope="session")
def monarch_command() -> Path:
    """The installed native command `monarch`."""
    command = Path(sysconfig.get_path("scripts")) / "monarch"
    if not os.access(command, os.X_OK):
        pytest.skip("the command monarch is not installed; run scripts/test")
    return command


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """A small dataset of many little files and one that has two Extents."""
    return make_dataset(tmp_path / "dataset")


@pytest.fixture(scope="session")
def soak_count(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """A function that chooses between a quick count and the full one of --soak."""
    full_run = _is_soak(request.config)

    def choose(quick: int, full: int) -> int:
        return full if full_run else quick

    return choose


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """A function that returns the path of a program, or skips the test without it."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            pytest.skip(f"needs the program {name}")
        return path

    return find


@pytest.fixture(scope="session")
def countfs_program() -> Path:
    """The compiled counting file system, or a skip that names the missing parts."""
    if lack := countfs.missing():
        pytest.skip(lack)
    return countfs.build()


@pytest.fixture(autouse=True)
def state_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The user's state directory, in which no earlier test has left an index."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture
def mount_counted(
    countfs_program: Path, tmp_path: Path
) -> Iterator[Callable[..., CountFs]]:
    """A function that mounts a counted view of a directory until the test ends."""
    with ExitStack() as mounts:

        def mount(source: Path, **settings: str | int) -> CountFs:
            root = Path(tempfile.mkdtemp(prefix="counted-", dir=tmp_path))
            view = countfs.mounted(countfs_program, source, root, **settings)
            return mounts.enter_context(view)

        yield mount
