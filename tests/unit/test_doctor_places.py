"""Findings of `monarch doctor` on places: directories, memory, tiers, network."""

import errno
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from monarch.config import Config, RunOptions, load
from monarch.doctor import network, storage
from monarch.doctor.findings import Finding, Level
from monarch.doctor.storage import FileSystem, file_system
from monarch.tiers.memory import Memory

GIB = 1 << 30


def configured(*tiers: str, **options: Any) -> Config:
    return load(RunOptions(tiers=tiers, **options), os.environ, Path("/")).config


def of(findings: Iterator[Finding], check: str) -> list[Finding]:
    return [finding for finding in findings if finding.check == check]


def texts(findings: Sequence[Finding], level: Level) -> list[str]:
    return [finding.text for finding in findings if finding.level is level]


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that says of which type the file systems of paths are."""

    def say(*options: str, **named: str) -> None:
        def kind(path: Path) -> FileSystem:
            return FileSystem(named.get(Path(path).name, "ext4"), frozenset(options))

        monkeypatch.setattr(storage, "file_system", kind)
        monkeypatch.setattr(network, "file_system", kind)

    return say


def test_the_file_system_of_a_path_is_that_of_the_last_mount_above_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [("/", "ext4"), ("/data", "nfs4"), ("/data", "lustre"), ("/dat", "xfs")]
    mounts = [
        SimpleNamespace(mountpoint=point, fstype=kind, opts="rw,noexec")
        for point, kind in rows
    ]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: mounts)

    found = file_system(Path("/data/set"))

    assert (found.kind, found.is_shared) == ("lustre", True)
    assert "noexec" in found.options
    assert file_system(Path("/database")).kind == "ext4"
    assert FileSystem("fuse.sshfs").is_shared


def test_file_system_is_unknown_where_proc_is_not_mounted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without(**_: object) -> None:
        raise FileNotFoundError("/proc/self/mounts")

    monkeypatch.setattr(psutil, "disk_partitions", without)

    assert file_system(Path("/")) == FileSystem("unknown")


# -- run directory and memory -------------------------------------------------------


def test_run_directory_that_is_not_private_prevents(tmp_path: Path) -> None:
    place = tmp_path / "runs"
    place.mkdir(mode=0o755)

    found = list(storage.check_run_directory({"MONARCH_STAGING_RUN_DIR": str(place)}))

    assert "mode 0755" in texts(found, Level.PREVENTS)[0]
    assert f"chmod 700 {place}" in found[0].fix
    none = {"MONARCH_STAGING_RUN_DIR": str(tmp_path / "none")}
    assert texts([*storage.check_run_directory(none)], Level.PREVENTS)


def test_run_directory_on_a_disk_or_mounted_noexec_is_reported(
    tmp_path: Path, kinds: Callable[..., None]
) -> None:
    tmp_path.chmod(0o700)
    kinds("noexec")

    found = list(
        storage.check_run_directory({"MONARCH_STAGING_RUN_DIR": str(tmp_path)})
    )

    assert "it should be in memory" in texts(found, Level.WARNING)[0]
    assert "containers need the installed shim" in texts(found, Level.NOTE)[0]
    assert os.listdir(tmp_path) == []


def test_run_directory_without_leases_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(storage, "grants_leases", lambda _folder: False)

    found = storage.check_run_directory({"MONARCH_STAGING_RUN_DIR": str(tmp_path)})

    assert any("F_SETLEASE" in text for text in texts([*found], Level.WARNING))


def test_memory_limit_of_a_cgroup_is_named() -> None:
    levels = [Memory(64 * GIB, 8 * GIB), Memory(16 * GIB, 12 * GIB)]

    (finding,) = storage.check_memory(levels)

    assert finding.text == (
        "limit 16.0 GiB (cgroup, of 64.0 GiB in the machine), 4.0 GiB free"
    )


# -- tiers and datasets -------------------------------------------------------------


def test_tier_of_another_kind_than_its_file_system_is_found(
    tmp_path: Path, kinds: Callable[..., None]
) -> None:
    for name in ("disk", "memory", "shared"):
        (tmp_path / name).mkdir()
    kinds(memory="tmpfs", shared="lustre")
    config = configured(
        f"ram:1MiB:{tmp_path}/disk",
        f"ssd:1MiB:{tmp_path}/memory",
        f"ssd:1MiB:{tmp_path}/shared",
    )

    found = list(storage.check_tiers(config))

    assert texts(found, Level.WARNING) == [
        f"kind is ram, but {tmp_path}/disk is ext4",
        f"kind is ssd, but {tmp_path}/memory is tmpfs: it takes memory",
        f"{tmp_path}/shared is lustre: it may be as slow as the origin",
    ]


def test_tier_on_the_device_of_a_dataset_is_found(tmp_path: Path) -> None:
    for name in ("data", "tier"):
        (tmp_path / name).mkdir()
    config = configured(f"ssd:1MiB:{tmp_path}/tier", data=(f"{tmp_path}/data",))

    found = of(storage.check_tiers(config), "tiers[0]")

    assert any("is on the device of datasets[0].path" in one.text for one in found)
    assert os.listdir(tmp_path / "tier") == []


def test_impossible_tiers_and_datasets_prevent(tmp_path: Path) -> None:
    config = configured(
        f"ssd:1MiB:{tmp_path}/none", "ram:8000GiB", data=(f"{tmp_path}/gone",)
    )

    found = [*storage.check_tiers(config)]

    assert {one.check for one in found if one.level is Level.PREVENTS} >= {
        *("tiers[0].path", "tiers[1].capacity"),
        "datasets[0].path",
    }
    assert "choose an existing directory" in found[1].fix


@pytest.mark.root
@pytest.mark.parametrize(("codec", "count"), [("zstd:3", 1), ("auto", 2), ("none", 0)])
def test_library_that_a_packed_tier_lacks_is_named(
    monkeypatch: pytest.MonkeyPatch, codec: str, count: int
) -> None:
    config = configured("ram:1MiB", settings=(f"tiers[0].codec={codec}",))
    lacks = {"none": ""}
    monkeypatch.setattr(storage, "codec_library", lambda one: lacks.get(one.method))

    found = of(storage.check_tiers(config), "tiers[0]")

    assert len([one for one in found if one.level is Level.WARNING]) == count


@pytest.mark.root
def test_tier_that_cannot_be_written_to_or_is_full_is_found(tmp_path: Path) -> None:
    for name, options in {"ro": "ro", "full": "size=4k,nr_inodes=5"}.items():
        (tmp_path / name).mkdir()
        words = ["mount", "-t", "tmpfs", "-o", options, "none", str(tmp_path / name)]
        subprocess.run(words, check=True)
    try:
        config = configured(*(f"ram:50%:{tmp_path}/{one}" for one in ("ro", "full")))
        found = list(storage.check_tiers(config))
    finally:
        for name in ("ro", "full"):
            subprocess.run(["umount", tmp_path / name], check=True)

    assert texts(of(iter(found), "tiers[0].path"), Level.PREVENTS)
    full = of(iter(found), "tiers[1]")
    assert any("more files" in one.text for one in full)


def test_dataset_in_memory_is_reported(
    tmp_path: Path, kinds: Callable[..., None]
) -> None:
    (tmp_path / "data").mkdir()
    kinds(data="tmpfs")

    found = storage.check_tiers(configured(data=(f"{tmp_path}/data",)))

    assert "in memory already" in of(found, "datasets[0].path")[0].text


# -- the network --------------------------------------------------------------------


def hosts(*names: str, **peers: str) -> Config:
    settings = tuple(f"peers.{key}={value}" for key, value in peers.items())
    return configured(hosts=",".join(names) or None, settings=settings)


def examined(config: Config, **environ: str) -> list[Finding]:
    return list(network.check_network(config, os.environ | environ))


def test_node_that_refuses_a_connection_can_be_reached() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # no listener, and no other process can bind it
        port = taken.getsockname()[1]

        assert network.why_unreachable("127.0.0.1", port, "127.0.0.1") == ""


def test_node_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    def connect(address: tuple[str, int], *_: object) -> None:
        raise TimeoutError if address == ("n2", 7001) else refused

    monkeypatch.setattr(socket, "create_connection", connect)

    found = examined(hosts("n1", "n2:7001", "n3"), MONARCH_STAGING_NODE="n1")

    peers = of(iter(found), "peers")
    assert [one.text for one in peers] == [
        "1 node can be reached",
        "n2 cannot be reached: no answer at port 7001 within 2 s; its files are read "
        "from the origin",
    ]


def test_node_without_a_known_address_is_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes of a job find each other by the rendezvous directory."""

    def connect(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "create_connection", connect)

    [peers] = of(iter(examined(hosts("n1", "n2"), MONARCH_STAGING_NODE="n1")), "peers")

    assert (peers.level, peers.text) == (
        Level.NOTE,
        "n2: no address is known for this name; nodes of a job tell each other their "
        "addresses in the rendezvous directory",
    )


def test_interface_that_does_not_exist_prevents() -> None:
    (finding,) = of(iter(examined(hosts(interface="none7"))), "interface")

    assert finding.level is Level.PREVENTS
    assert finding.fix.startswith("use an address of this node")


def test_fast_interface_that_is_not_used_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = SimpleNamespace(isup=True)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {"ib0": state})

    (finding,) = of(iter(examined(hosts())), "interface")

    assert finding.fix == "peers: {interface: ib0}"


def test_bbr_that_cannot_be_replaced_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        socket.socket, "getsockopt", lambda *_: b"bbr\0\0\0", raising=False
    )
    monkeypatch.setattr(network, "_SETTINGS", tmp_path)
    (tmp_path / "tcp_allowed_congestion_control").write_text("bbr\n")
    (alone,) = of(iter(examined(hosts())), "congestion")
    (tmp_path / "tcp_allowed_congestion_control").write_text("reno cubic\n")
    (replaced,) = of(iter(examined(hosts())), "congestion")

    assert (alone.level, replaced.level) == (Level.WARNING, Level.OK)


def test_rendezvous_directory_must_be_private_and_shared_by_the_nodes(
    tmp_path: Path, kinds: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "why_unreachable", lambda *_: "")
    place = tmp_path / "meet"
    place.mkdir(mode=0o700)
    config = hosts("n1", "n2", rendezvous=str(place))

    def found() -> Finding:
        found = examined(config, MONARCH_STAGING_NODE="n1")
        return of(iter(found), "rendezvous")[0]

    kinds()
    local = found()
    kinds(meet="lustre")
    shared = found()
    place.chmod(0o777)
    public = found()

    assert [one.level for one in (local, shared, public)] == [
        *(Level.WARNING, Level.OK, Level.PREVENTS),
    ]
    assert "lustre, owner" in shared.text
    assert "mode 0700" in shared.text
    assert "is writable by other users" in public.text


def test_rendezvous_directory_of_one_node_need_not_be_shared() -> None:
    assert of(iter(examined(hosts())), "rendezvous")[0].level is Level.OK


def test_network_is_not_checked_where_peers_are_off() -> None:
    assert [one.check for one in examined(hosts(mode="off"))] == ["nodes"]
