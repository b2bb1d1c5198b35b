"""`monarch plan --simulate`: its options reach the model."""

import json

import pytest

from monarch.cli import main

GIVEN = ("--files", "10000", "--size", "1GB", "--tier", "ram:2GB")
FAST = (*GIVEN, "--simulate", "--origin-rate", "1GB/s")
SLOW_LINKS = ("--nodes", "2", "--network-rate", "10MB/s", "--mode", "partition")


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Runs `monarch plan` for given files and returns its output."""
    monkeypatch.chdir(tmp_path)

    def plan(*arguments, code=0):
        assert main(["plan", *arguments]) == code
        return capsys.readouterr()

    return plan


@pytest.fixture
def simulated(run):
    def plan(*arguments, tier="ram:2GB"):
        words = ["--files", "10000", "--size", "1GB", "--tier", tier, "--simulate"]
        return json.loads(run(*words, "--json", *arguments).out)["simulation"]

    return plan


def test_epochs_of_a_dataset_that_is_not_here(simulated):
    found = simulated("--origin-rate", "100MB/s", "--epochs", "10")

    assert found["first"]["seconds"] == pytest.approx(10, rel=0.02)
    assert found["first"]["limited_by"] == "origin"
    assert found["later"]["seconds"] < 1
    assert found["later"]["read"]["ram"] == pytest.approx(10**9)
    later_s = found["later"]["seconds"]
    assert found["seconds"] == pytest.approx(found["first"]["seconds"] + 9 * later_s)
    assert found["seconds_without"] == pytest.approx(100, rel=0.02)


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        (("--compute", "2ms"), 20),
        (("--compute", "40MB/s"), 25),
        (("--compute", "4ms", "--serial"), 10),
        (("--compute", "4ms", "--serial", "--readers", "8"), 5),
        (("--tier-rate", "50MB/s"), 20),
        (SLOW_LINKS, 25),
        ((*SLOW_LINKS, "--reads", "everything"), 50),
    ],
)
def test_a_later_epoch_takes_as_long_as_what_limits_it(simulated, options, seconds):
    found = simulated("--origin-rate", "1GB/s", *options)

    assert found["later"]["seconds"] == pytest.approx(seconds, rel=0.06)


def test_tiers_are_filled_in_order(simulated):
    words = ("--tier", "ssd:300MB:/local", "--origin-rate", "1GB/s")

    read = simulated(*words, tier="ram:500MB")["later"]["read"]

    shares = {name: size / 10**9 for name, size in read.items()}
    assert shares["ram"] == pytest.approx(0.5, rel=0.05)
    assert shares["ssd"] == pytest.approx(0.3, rel=0.05)
    assert shares["origin"] == pytest.approx(0.2, abs=0.05)


def test_without_fill_the_first_epoch_waits_for_each_file(simulated):
    words = ("--origin-rate", "1GB/s", "--origin-latency", "5ms", "--readers", "1")

    filled = simulated(*words)["first"]
    reactive = simulated(*words, "--set", "fill.enabled=false")["first"]

    assert reactive["limited_by"] == "origin latency"
    assert reactive["seconds"] == pytest.approx(10_000 * 0.0101, rel=0.02)
    assert filled["seconds"] < reactive["seconds"] / 5


def test_a_node_could_keep_the_files_that_it_reads_most_often(simulated, run):
    words = ("--origin-rate", "1GB/s", "--nodes", "4", "--epochs", "10")
    few = ("--tier", "ram:100MB", "--set", "peers.transit=0")

    local = simulated(*words, *few[2:], tier="ram:100MB")["local"]
    out = run("--files", "10000", "--size", "1GB", *few, "--simulate", *words).out

    assert local["share"] == pytest.approx(0.1, rel=0.1)
    assert local["share_at_best"] > 1.5 * local["share"]
    assert "each later epoch" in out
    assert "the files that" in out
    assert all(len(line) <= 80 for line in out.splitlines())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((*GIVEN, "--simulate"), "--simulate needs --origin-rate"),
        ((*GIVEN, "--simulate", "--origin-rate", "7"), "--origin-rate: '7'"),
        ((*GIVEN, "--simulate", "--origin-rate", "0B/s"), "no rate above 0"),
        (
            (*FAST, "--compute", "2"),
            "--compute: '2'",
        ),
        (
            (*FAST, "--tier-rate", "1GB/s,2GB/s"),
            "2 rates for 1 tiers",
        ),
        (("--files", "5"), "use --files and --size together"),
        ((*GIVEN, "--data", "/tmp"), "not several of them"),
        (("--files", "5", "--size", "much"), "--size: 'much'"),
    ],
)
def test_a_mistake_is_reported_in_one_line(run, words, expected):
    error = run(*words, code=2).err

    assert expected in error
    assert error.count("\n") <= 2
