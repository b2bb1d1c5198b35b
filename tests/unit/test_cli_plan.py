"""`monarch plan`: prints what a job would do, and each error in one line."""

import json
import os

import pytest

from monarch.cli import main
from monarch.units import format_size

PAGE = 4096
FILES = 400
TOTAL = FILES * PAGE


def fits(text: str) -> bool:
    """Whether no line has more than 80 columns, except for a path that is longer."""
    return all(len(line) <= 80 or " /" in line for line in text.splitlines())


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    """Files of a page each, so that their sizes are what they take of a tier."""
    root = tmp_path / "set"
    for number in range(FILES):
        path = root / f"class{number % 7}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.truncate(path, PAGE)
    monkeypatch.chdir(tmp_path)
    return root


@pytest.fixture
def plan(dataset, capsys):
    """Runs `monarch plan` for the dataset and returns its output."""

    def run(*arguments, code=0, data=True):
        given = ["--data", str(dataset)] if data else []
        assert main(["plan", *given, *arguments]) == code
        return capsys.readouterr()

    return run


@pytest.fixture
def described(plan):
    def run(*arguments, **options):
        return json.loads(plan("--json", *arguments, **options).out)

    return run


@pytest.fixture
def saved(dataset, capsys):
    """A saved index of the dataset."""
    assert main(["index", "-o", "saved", str(dataset)]) == 0
    capsys.readouterr()
    return "saved"


def test_a_dataset_that_fits_twice_is_held_twice(described):
    found = described("--nodes", "4", "--capacity", f"{TOTAL // 2 + 20 * PAGE}B")

    assert (found["files"], found["bytes"]) == (FILES, TOTAL)
    assert (found["copies_wanted"], found["mode"]) == (2, "auto")
    assert [node["name"] for node in found["nodes"]] == [f"node{n}" for n in range(4)]
    assert sum(node["files"] for node in found["nodes"]) > 1.9 * FILES
    assert all(node["used"] <= 1 for node in found["nodes"])
    assert found["left_at_origin"] == {"files": 0, "bytes": 0}


def test_a_dataset_that_fits_is_read_from_the_origin_once(described):
    origin = described("--nodes", "4", "--capacity", "1GiB", "--epochs", "3")["origin"]

    assert origin["sharded"] == {"bytes": TOTAL, "bytes_without": 3 * TOTAL}
    assert origin["everything"] == {"bytes": TOTAL, "bytes_without": 12 * TOTAL}


def test_files_that_do_not_fit_are_read_from_the_origin_in_each_epoch(described):
    found = described("--nodes", "2", "--capacity", f"{100 * PAGE}B", "--epochs", "5")

    assert found["left_at_origin"] == {"files": 200, "bytes": 200 * PAGE}
    assert [node["files"] for node in found["nodes"]] == [100, 100]
    assert found["origin"]["sharded"]["bytes"] == (200 + 5 * 200) * PAGE
    assert found["origin"]["everything"]["bytes"] == (200 + 2 * 5 * 200) * PAGE


@pytest.mark.parametrize(
    ("mode", "held", "again"),
    [("partition", FILES, True), ("replicate", 4 * FILES, False)],
)
def test_the_mode_sets_the_number_of_copies(described, mode, held, again):
    found = described("--nodes", "4", "--capacity", "1GiB", "--mode", mode)

    assert sum(node["files"] for node in found["nodes"]) == held
    assert bool(found["loss"]["bytes_read_again"]) is again


def test_hosts_with_capacities_of_their_own_hold_accordingly(described):
    sizes = f"{300 * PAGE}B,{150 * PAGE}B"

    big, small = described("--hosts", "big, small", "--capacity", sizes)["nodes"]

    assert (big["name"], small["name"]) == ("big", "small")
    assert 1.4 < big["files"] / small["files"] < 2.9


def test_hosts_are_listed_as_slurm_lists_them(described):
    found = described("--hosts", "n[08-10],big", "--capacity", "1GiB")

    assert [node["name"] for node in found["nodes"]] == ["n08", "n09", "n10", "big"]


def test_hosts_and_mode_are_the_configured_ones_unless_others_are_given(
    described, tmp_path
):
    (tmp_path / "c.yaml").write_text("hosts: [a, 'b:7001']\npeers: {mode: replicate}\n")
    arguments = ("-c", "c.yaml", "--capacity", "1GiB")

    found = described(*arguments)
    other = described(*arguments, "--nodes", "3", "--mode", "partition")

    assert [node["name"] for node in found["nodes"]] == ["a", "b"]
    assert (found["mode"], other["mode"]) == ("replicate", "partition")
    assert len(other["nodes"]) == 3


def test_the_printed_loss_is_that_of_the_worst_node(described):
    found = described("--nodes", "4", "--capacity", "1GiB", "--mode", "partition")

    worst = max(node["owned_files"] for node in found["nodes"])
    assert found["loss"]["files_moved"] == worst
    assert found["loss"]["moved"] == worst / FILES <= 1 / 4 + 0.1
    assert sum(node["owned_files"] for node in found["nodes"]) == FILES


def test_tiers_of_the_options_add_up(described, tmp_path):
    found = described("--tier", "ram:1MiB", "--tier", f"ssd:2MiB:{tmp_path}/nowhere")

    assert [node["capacity_bytes"] for node in found["nodes"]] == [3 << 20]


def test_a_share_of_a_tier_is_that_of_this_machine(described, tmp_path):
    total = os.statvfs(tmp_path)

    found = described("--tier", f"ssd:0.001%:{tmp_path}")

    expected = total.f_blocks * total.f_frsize // 100_000
    assert found["nodes"][0]["capacity_bytes"] == expected


def test_a_saved_index_is_planned_without_its_dataset(described, dataset, saved):
    dataset.rename(dataset.with_name("gone"))

    asked = ("--index", saved, "--nodes", "3", "--capacity", "1MiB")
    once, again = described(*asked, data=False), described(*asked, data=False)

    assert once == again
    assert (once["datasets"], once["files"]) == ([str(dataset)], FILES)


def test_the_configuration_names_datasets_and_tiers(described, dataset, tmp_path):
    file = tmp_path / "job.yaml"
    tier = "{name: ram, kind: ram, capacity: 1MiB}"
    file.write_text(f"datasets: [{{path: {dataset}}}]\ntiers: [{tier}]\n")

    found = described("-c", str(file), "--nodes", "2", data=False)

    assert found["datasets"] == [str(dataset)]
    assert found["nodes"][0]["capacity_bytes"] == (1 << 20) * 7 // 8
    assert found["notes"] == ["the pool takes 128.0 KiB of the ram tiers of a node"]


@pytest.mark.parametrize(
    ("words", "capacity"),
    [
        ((), 1 << 20),
        (("--nodes", "2"), 7 << 17),
        (("--set", "tiers[0].codec=none"), 7 << 17),
        (("--nodes", "2", "--set", "peers.transit=256KiB"), 3 << 18),
        (("--nodes", "2", "--set", "peers.transit=0"), 1 << 20),
        (("--nodes", "2", "--tier", "ram:2GiB:/tmp"), (1 << 20) + (7 << 28)),
        (("--nodes", "2", "--tier", "ssd:1MiB:/tmp"), (2 << 20) - (1 << 17)),
    ],
)
def test_pool_is_a_part_of_the_ram_tiers(described, words, capacity):
    found = described("--tier", "ram:1MiB", *words)

    assert found["nodes"][0]["capacity_bytes"] == capacity


def test_people_get_tables_that_fit_a_terminal(plan):
    text = plan("--nodes", "4", "--capacity", "1MiB", "--epochs", "9").out

    assert (
        f"{FILES} files, {format_size(TOTAL)} ({format_size(TOTAL)} in tiers); "
        "4 nodes, auto: 2 copies of each file."
    ) in " ".join(text.split())
    assert fits(text)
    assert "every file is staged: 2 copies" in text
    assert "if a node is lost" in text


def test_tiny_files_are_planned_with_the_room_that_they_take(plan, dataset, described):
    for path in dataset.glob("*/*"):
        os.truncate(path, 80)

    text = plan("--nodes", "1", "--capacity", "2MiB").out
    found = described("--nodes", "1", "--capacity", "2MiB")

    assert f"31.2 KiB ({format_size(TOTAL)} in tiers); " in " ".join(text.split())
    assert "small files: 31.2 KiB use 1.6 MiB of the tiers" in text
    assert fits(text)
    assert (found["bytes"], found["room_bytes"]) == (80 * FILES, TOTAL)


@pytest.fixture
def large(dataset):
    """A file of many Extents beside the small ones."""
    size = 100 * (8 << 20) + 1
    (dataset / "huge").touch()
    os.truncate(dataset / "huge", size)
    return size


def test_a_file_larger_than_each_node_is_planned_in_parts(plan, described, large):
    arguments = ("--nodes", "4", "--capacity", "300MiB", "--mode", "partition")

    found = described(*arguments)
    text = plan(*arguments).out

    assert found["left_at_origin"] == {"files": 0, "bytes": 0}
    assert found["partly_held_files"] == 0
    assert [node["part_files"] for node in found["nodes"]] == [1] * 4
    assert sum(node["files"] for node in found["nodes"]) == FILES
    assert sum(node["bytes"] for node in found["nodes"]) == TOTAL + large
    assert min(node["bytes"] for node in found["nodes"]) > 0.15 * large
    assert "files  in part" in text
    assert "every file is staged: one copy" in text
    assert "or parts of them, get another owner" in " ".join(text.split())
    assert fits(text)


def test_a_file_larger_than_all_nodes_is_planned_as_held_in_part(
    plan, described, large
):
    arguments = ("--nodes", "2", "--capacity", "200MiB", "--epochs", "3")

    found = described(*arguments)
    text = plan(*arguments).out

    assert found["partly_held_files"] == 1
    assert found["left_at_origin"]["files"] == 0
    left = found["left_at_origin"]["bytes"]
    held = sum(node["bytes"] for node in found["nodes"])
    assert left == TOTAL + large - held
    assert 2 * (192 << 20) <= held <= 2 * (200 << 20)
    assert found["origin"]["sharded"]["bytes"] == held + 3 * left
    said = "left at the origin because no space is left: parts of 1 file, "
    assert said in " ".join(text.split())
    assert "every file is staged" not in text


def test_files_that_are_waited_for_are_planned_whole(described, large):
    arguments = ("--nodes", "4", "--capacity", "300MiB")

    for setting in ("cold_open.wait_max=1GiB", "cold_open.mode=wait"):
        found = described(*arguments, "--set", setting)

        assert found["left_at_origin"] == {"files": 1, "bytes": large}
        assert all(node["part_files"] == 0 for node in found["nodes"])


def test_pages_that_are_full_need_no_advice(plan):
    assert "small files" not in plan("--nodes", "1", "--capacity", "2MiB").out


def test_a_large_cluster_is_summarised_by_its_extremes(plan, described, saved):
    arguments = ("--index", saved, "--nodes", "40", "--capacity", "1MiB")

    text = plan(*arguments, "--mode", "partition", data=False).out

    found = described(*arguments, "--mode", "partition", data=False)
    rest = [node["bytes"] for node in found["nodes"][15:]]
    extremes = f"{format_size(min(rest))} to {format_size(max(rest))}"
    assert f"... 25 more nodes with {extremes} each" in text
    assert text.count("\n  node") == 16


def test_nothing_is_made_and_nothing_is_started(plan, dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("MONARCH_STAGING_RUN_DIR", str(tmp_path / "runs"))
    before = sorted(tmp_path.rglob("*"))

    plan("--nodes", "4", "--tier", f"ssd:50%:{tmp_path}", "--tier", "ram:1MiB")

    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--nodes", "0"], "Invalid value for '--nodes'"),
        (["--nodes", "many"], "Invalid value for '--nodes'"),
        (["--nodes", "2", "--hosts", "a,b"], "use --nodes or --hosts"),
        (["--hosts", " , "], "--hosts: hosts: ' , ' is not valid; use NAME"),
        (["--hosts", "n[1-"], "--hosts: hosts: 'n[1-' is not valid; use NAME"),
        (["--set", "peers.mode=off"], "peers.mode is off"),
        (["--capacity", "4"], "--capacity: '4' is not valid; use a size"),
        (["--capacity", "40%"], "--capacity: '40%' is not valid; use a size"),
        (["--capacity", "1GiB,2GiB"], "2 sizes for 1 node"),
        (["--capacity", "1GiB", "--tier", "ram:1GiB"], "use --capacity or --tier"),
        (["--tier", "tape:1GiB"], "use KIND:CAPACITY[:PATH]"),
        (
            ["--tier", "ssd:50%:/no/such"],
            "or give the capacity of a node with --capacity",
        ),
        (["--mode", "most"], "Invalid value for '--mode'"),
        (["--epochs", "0"], "Invalid value for '--epochs'"),
        (["--index", "absent"], "use --index or --data"),
        (["--data", "/no/such"], "/no/such"),
    ],
)
def test_an_impossible_plan_is_one_line(plan, arguments, line):
    said = plan(*arguments, code=2)

    assert line in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize("content", [None, b"no index"])
def test_an_index_that_cannot_be_read_is_one_line(plan, tmp_path, content):
    if content is not None:
        (tmp_path / "saved").write_bytes(content)

    said = plan("--index", "saved", code=2, data=False)

    assert said.err.startswith("monarch: --index: saved: ")
    assert said.err.count("\n") == 1


def test_no_dataset_at_all_is_one_line(plan):
    assert plan(code=2, data=False).err.count("\n") == 1


def test_a_dataset_inside_another_is_counted_once(described, dataset):
    alone = described("--tier", "ram:8MiB")
    both = described("--tier", "ram:8MiB", "--data", str(dataset / "class1"))

    assert both["files"] == alone["files"]
    assert both["bytes"] == alone["bytes"]


def test_links_of_the_dataset_are_counted(described, dataset):
    (dataset / "out").symlink_to("/etc/hostname")
    (dataset / "gone").symlink_to("nowhere")

    (note,) = described("--tier", "ram:8MiB")["notes"]

    assert note.startswith("names: 2 links, 1 followed out of the dataset")
    assert "1 dangling link" in note


def test_plan_notes_settings_of_the_tiers_that_its_numbers_ignore(plan, described):
    lru = ("--set", "tiers[0].eviction=lru")
    small, large = ("--tier", "ram:800KiB"), ("--tier", "ram:8MiB")

    assert "use eviction: none" in " ".join(plan(*small, *lru).out.split())
    assert fits(plan(*small, *lru).out)
    assert described(*large, *lru)["notes"] == []
    assert described(*small)["notes"] == []
    pool, note = described(*small, "--set", "tiers[0].codec=auto")["notes"]
    assert pool == "the pool takes 100.0 KiB of the ram tiers of a node"
    assert "may hold more than this plan says; see `monarch codecs`" in note
