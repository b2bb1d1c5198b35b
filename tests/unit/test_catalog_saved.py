"""Index files: a saved index is read back, and a damaged one is refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monarch import native
from monarch.catalog.patterns import Patterns
from monarch.origins.dataset import Dataset, prepare_index
from monarch.origins.index_file import (
    check_fresh,
    read_index,
    save_index,
)
from monarch.origins.relocation import IndexUnusableError
from monarch.origins.root import open_root
from support.trees import Tree, lstat_of

HEADER_BYTES = native.DTYPES["index"].itemsize


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with files, directories and links."""
    folder = tmp_path_factory.mktemp("saved") / "root"
    (folder / "a" / "b").mkdir(parents=True)
    for number in range(40):
        (folder / "a" / f"f{number}").write_bytes(b"x" * number)
    (folder / "link").symlink_to("a")
    (folder.parent / "outside" / "deep").mkdir(parents=True)
    (folder.parent / "outside" / "deep" / "x").touch()
    (folder / "out").symlink_to(folder.parent / "outside")
    return folder


@pytest.fixture(scope="module")
def saved(root: Path) -> Path:
    """Its saved index."""
    file = root.with_name("saved.index")
    save_index(file, Tree.scan(root, Patterns(never=("*.lock",))).index)
    return file


@pytest.fixture
def own_root(root: Path, tmp_path: Path) -> Path:
    """A copy of the dataset that a test may change."""
    return Path(shutil.copytree(root, tmp_path / "root", symlinks=True))


def test_a_saved_index_is_loaded_unchanged(root: Path, saved: Path) -> None:
    made = Tree.scan(root, Patterns(never=("*.lock",))).index

    index = read_index(saved)

    # Other tests change directories above the root.
    count = made.block.hop_start
    blocks = index.block, made.block
    for name in ("ino", "size", "mtime_ns", "path", "file", "target"):
        first, second = (block.entries[name][:count] for block in blocks)
        assert (first == second).all()
    first, second = (block.attrs[block.entries["attr"][:count]] for block in blocks)
    assert (first == second).all()
    assert (index.root, index.patterns) == (made.root, made.patterns)
    assert index.unmanaged == made.unmanaged


def test_saving_leaves_no_temporary_file_behind(saved: Path, tmp_path: Path) -> None:
    index = read_index(saved)
    file = tmp_path / "x.index"
    file.write_text("older")

    length = save_index(file, index)

    assert os.listdir(tmp_path) == ["x.index"]
    assert file.stat().st_size == length


def test_a_failed_save_keeps_the_older_index(saved: Path, tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    (target / "kept").touch()

    with pytest.raises(OSError, match="directory"):
        save_index(target, read_index(saved))

    assert sorted(os.listdir(tmp_path)) == ["folder"]


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_flipped_byte_is_noticed_wherever_it_is(
    saved: Path, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(saved.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    file = tmp_path / "damaged"
    file.write_bytes(content)

    with pytest.raises(IndexUnusableError, match=r"damaged|not an index|version"):
        read_index(file)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_truncated_index_is_noticed(
    saved: Path, tmp_path: Path, data: st.DataObject
) -> None:
    content = saved.read_bytes()
    file = tmp_path / "short"
    file.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])

    with pytest.raises(IndexUnusableError):
        read_index(file)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_garbage_with_a_right_digest_is_refused_or_harmless(
    saved: Path, data: st.DataObject
) -> None:
    memory = read_index(saved).block.memory.copy()
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(memory) - 1))
        memory[at] = data.draw(st.integers(0, 255))
    header = memory[:HEADER_BYTES].view(native.DTYPES["index"])
    header["digest"] = native.hash64(memory[HEADER_BYTES:].copy())

    try:
        native.index_check(memory)
    except native.BlockError:
        return
    for path in (b"", b"a", b"a/f1", b"link/f1", b"absent", b"x" * 1023):
        assert native.index_find(memory, path) < int(header["entry_count"][0])


def test_other_files_are_not_taken_for_an_index(tmp_path: Path) -> None:
    for name, content in {
        "empty": b"",
        "text": b"hello\n",
        "zeros": bytes(9999),
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(IndexUnusableError, match="not an index file"):
            read_index(tmp_path / name)
    with pytest.raises(IndexUnusableError, match="No such file"):
        read_index(tmp_path / "missing")


def test_a_length_beyond_the_file_does_not_allocate(
    saved: Path, tmp_path: Path
) -> None:
    content = np.frombuffer(saved.read_bytes(), np.uint8).copy()
    content[:HEADER_BYTES].view(native.DTYPES["index"])["seg"]["length"] = 1 << 60
    (tmp_path / "huge").write_bytes(content.tobytes())

    with pytest.raises(IndexUnusableError, match="incomplete"):
        read_index(tmp_path / "huge")


def freshness(index_of: Path, root: Path, patterns: Patterns | None = None) -> str:
    """Why an index of the root is refused after all, or nothing."""
    try:
        check_fresh(
            Tree.scan(index_of).index,
            open_root(str(root)),
            patterns or Patterns(),
            threads=2,
        )
    except IndexUnusableError as reason:
        return str(reason)
    return ""


def test_an_unchanged_root_is_fresh(own_root: Path) -> None:
    assert freshness(own_root, own_root) == ""


def test_another_directory_is_stale(root: Path, own_root: Path) -> None:
    assert "another directory" in freshness(root, own_root)


def test_other_patterns_are_stale_and_named(own_root: Path) -> None:
    reason = freshness(own_root, own_root, Patterns(exclude=("*.tmp",)))

    assert "exclude" in reason
    assert "*.tmp" in reason


@pytest.mark.parametrize(
    "change", ["added", "removed", "replaced", "gone", "closed", "turned back"]
)
def test_a_changed_directory_is_stale_and_named(own_root: Path, change: str) -> None:
    index = Tree.scan(own_root).index
    folder = own_root / "a"
    before = folder.stat()
    named = own_root if change in ("replaced", "gone") else folder
    match change:
        case "added":
            (folder / "new").touch()
        case "removed":
            (folder / "f1").unlink()
        case "replaced":
            folder.rename(own_root.with_name("aside"))
            shutil.copytree(own_root.with_name("aside"), folder)
            os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
        case "gone":
            shutil.rmtree(folder)
        case "closed":
            folder.chmod(0o700)
        case "turned back":
            (folder / "new").touch()
            os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(IndexUnusableError, match=f"{named}/? has changed"):
        check_fresh(index, open_root(str(own_root)), Patterns())


@pytest.mark.root
@pytest.mark.parametrize("way", ["led elsewhere", "gone", "replaced"])
def test_a_link_that_changed_in_the_second_of_the_scan_is_noticed(
    own_root: Path, way: str
) -> None:
    index = Tree.scan(own_root).index
    link = own_root / "link"
    link.unlink()
    if way == "led elsewhere":
        link.symlink_to("a/b")
    if way == "replaced":
        link.mkdir()
        link.rmdir()
        shutil.copy(own_root / "a" / "f1", link)
    # As if all changes had the same timestamp of the file system.
    now, top = own_root.stat(), index.block.entries[:1]
    top["mtime_ns"], top["ctime_ns"] = now.st_mtime_ns, now.st_ctime_ns

    with pytest.raises(IndexUnusableError, match=f"{own_root}/? has changed"):
        check_fresh(index, open_root(str(own_root)), Patterns())


@pytest.mark.root
def test_an_index_of_names_that_this_process_may_not_look_up_is_refused(
    own_root: Path, tmp_path: Path
) -> None:
    """A scan with all rights has seen what a user of the index may not."""
    closed = own_root / "closed"
    closed.mkdir(mode=0o700)
    (closed / "inner").write_bytes(b"x")
    os.chown(closed, 1, 1)
    file = tmp_path / "rights.index"
    save_index(file, Tree.scan(own_root).index)
    check = (
        "import sys; from pathlib import Path\n"
        "from monarch.catalog.patterns import Patterns\n"
        "from monarch.origins.index_file import check_fresh\n"
        "from monarch.origins.root import open_root\n"
        "from monarch.origins.index_file import read_index\n"
        "index = read_index(Path(sys.argv[1]))\n"
        "check_fresh(index, open_root(sys.argv[2]), Patterns())"
    )
    command = [sys.executable, "-c", check, str(file), str(own_root)]
    less = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]

    refused = subprocess.run(less, capture_output=True, text=True)

    subprocess.run(command, check=True)
    assert f"{closed} cannot be searched" in refused.stderr


def test_an_index_records_the_rights_with_which_it_was_made(root: Path) -> None:
    header = Tree.scan(root).index.block.header

    assert header["scan_euid"] == os.geteuid()
    assert header["scan_rights"] == native.rights_mark()


def test_a_changed_directory_of_any_name_is_named_in_one_printable_line(
    own_root: Path,
) -> None:
    weird = os.path.join(os.fsencode(own_root), b"\xff\nx")
    os.mkdir(weird)
    index = Tree.scan(own_root).index
    os.chmod(weird, 0o700)

    with pytest.raises(IndexUnusableError) as refused:
        check_fresh(index, open_root(str(own_root)), Patterns())

    assert str(refused.value).isprintable()
    assert r"\xff\nx has changed" in str(refused.value).replace(r"\\", "\\")


def test_a_fresh_index_is_loaded_instead_of_scanning(root: Path, saved: Path) -> None:
    said: list[str] = []
    dataset = Dataset(str(root), Patterns(never=("*.lock",)), index_file=saved)

    indexed = prepare_index(dataset, warn=said.append)

    assert (indexed.provisional, indexed.scanned) == (True, False)
    assert said == []


def test_an_index_from_a_node_with_other_device_numbers_is_loaded(
    own_root: Path, tmp_path: Path
) -> None:
    tree = Tree.scan(own_root)
    tree.block.move_to_devices({int(tree.block.header["root_dev"]): 4711})
    save_index(tmp_path / "x.index", tree.index)
    said: list[str] = []
    dataset = Dataset(str(own_root), Patterns(), index_file=tmp_path / "x.index")

    indexed = prepare_index(dataset, warn=said.append)

    assert (indexed.provisional, said) == (True, [])
    assert indexed.index.block.header["root_dev"] == own_root.stat().st_dev
    for path in ("", "a", "a/f1", "link/f1"):
        assert Tree(indexed.index).status(path) == lstat_of(
            os.fsencode(own_root / path)
        )
    native.index_check(indexed.index.block.memory)


def test_a_root_elsewhere_with_another_device_number_is_stale(own_root: Path) -> None:
    index = Tree.scan(own_root).index
    index.block.move_to_devices({int(index.block.header["root_dev"]): 4711})
    moved = own_root.rename(own_root.with_name("moved"))

    with pytest.raises(IndexUnusableError, match="another directory"):
        check_fresh(index, open_root(str(moved)), Patterns())


def test_a_stale_index_is_named_and_the_root_is_scanned(
    own_root: Path, saved: Path
) -> None:
    said: list[str] = []
    dataset = Dataset(str(own_root), Patterns(), ("/alias",), saved)

    indexed = prepare_index(dataset, warn=said.append)

    assert (indexed.provisional, indexed.scanned) == (False, True)
    assert indexed.index.block.header["root_ino"] == own_root.stat().st_ino
    assert len(said) == 1
    assert "another directory" in said[0]
    assert indexed.mapped().spellings == (os.fsencode(own_root), b"/alias")
