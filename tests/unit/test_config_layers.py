"""Tests of monarch.config: files, environment and options, and their precedence."""

import os

import pytest

from monarch.config import (
    Config,
    Layer,
    RunOptions,
    leaves,
    load,
    parse_tier,
    require_datasets,
)
from monarch.config.template import value_text
from monarch.config.tree import key_text
from monarch.errors import ConfigError, UsageError
from monarch.units import Size, SizeKind


def test_without_any_setting_the_defaults_apply(tmp_path, site_file):
    loaded = load(RunOptions(), {}, tmp_path)

    assert loaded.config == Config()
    assert loaded.files == ()
    assert {where.layer for where in loaded.origins.values()} == {Layer.DEFAULT}
    assert loaded.config.tiers[0].capacity == Size(SizeKind.AUTO)
    assert loaded.config.retain == "job"
    with pytest.raises(UsageError, match="--data PATH"):
        require_datasets(loaded.config)


def test_stronger_layer_overrides_a_weaker_one(tmp_path, site_file):
    site_file.write_text(
        "fill: {concurrency: 1, bandwidth: 1MB/s}\nagent: {linger: 1s}\n"
    )
    (tmp_path / "site.yaml").write_text("agent: {linger: 2s}\nretain: node\n")
    (tmp_path / "job.yaml").write_text("fill: {concurrency: 3}\nlog: {level: error}\n")
    environ = {
        "MONARCH_STAGING_SITE_CONFIG": "site.yaml",
        "MONARCH_STAGING_CONFIG": "job.yaml",
        "MONARCH_STAGING_LOG__LEVEL": "warning",
        "MONARCH_STAGING_COLD_OPEN__MODE": "wait",
    }
    options = RunOptions(settings=("cold_open.mode=through",))

    loaded = load(options, environ, tmp_path)

    origin = {key: where.described() for key, where in loaded.origins.items()}
    assert loaded.config.fill.bytes_per_s == 1_000_000
    assert origin["fill.bandwidth"] == f"site file {site_file}:1"
    assert loaded.config.agent.linger == 2
    assert origin["agent.linger"] == "site file site.yaml:1"
    assert loaded.config.fill.concurrency == 3
    assert origin["fill.concurrency"] == "job.yaml:1"
    assert loaded.config.log.level == "warning"
    assert origin["log.level"] == "environment MONARCH_STAGING_LOG__LEVEL"
    assert loaded.config.cold_open.mode == "through"
    assert origin["cold_open.mode"] == "option --set cold_open.mode=through"
    assert origin["cold_open.timeout"] == "default"
    assert loaded.files == (site_file, tmp_path / "site.yaml", tmp_path / "job.yaml")


def test_first_file_of_the_search_order_is_used(tmp_path, site_file):
    home, xdg, work = tmp_path / "home", tmp_path / "xdg", tmp_path / "work"
    places = {
        "home": home / ".config/monarch-staging/config.yaml",
        "xdg": xdg / "monarch-staging/config.yaml",
        "here": work / "monarch.yaml",
        "variable": work / "v.yaml",
        "option": work / "o.yaml",
    }
    for number, path in enumerate(places.values(), 1):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"fill: {{concurrency: {number}}}")
    environ = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(xdg),
        "MONARCH_STAGING_CONFIG": "v.yaml",
    }

    def concurrency(option=None):
        return load(RunOptions(config=option), environ, work).config.fill.concurrency

    assert concurrency("o.yaml") == 5
    assert concurrency() == 4
    del environ["MONARCH_STAGING_CONFIG"]
    assert concurrency() == 3
    places["here"].unlink()
    assert concurrency() == 2
    environ["XDG_CONFIG_HOME"] = "relative"
    assert concurrency() == 1
    del environ["HOME"], environ["XDG_CONFIG_HOME"]
    assert concurrency() == "auto"


def test_sections_left_empty_change_nothing(load_text):
    assert load_text("fill:\ntiers:\nretain:\nschema:\n").config == Config()


def test_list_of_a_file_replaces_the_one_below(load_text, site_file):
    site_file.write_text(
        "tiers: [{name: site, kind: ssd, path: /s}, {name: b, kind: ram}]"
    )

    assert [tier.name for tier in load_text("log: {}").config.tiers] == ["site", "b"]
    assert [
        tier.name for tier in load_text("tiers: [{name: x, kind: ram}]").config.tiers
    ] == ["x"]


def test_environment_reaches_into_lists_and_sections(load_text):
    environ = {
        "MONARCH_STAGING_TIERS__0__CAPACITY": "4GiB",
        "MONARCH_STAGING_TIERS__1": "{name: ssd, kind: ssd, path: /l}",
        "MONARCH_STAGING_RETAIN": "node",
        "MONARCH_STAGING_PROGRAMS__EXCLUDE": "[cp, rsync]",
        "MONARCH_STAGING_RUN_DIR": "/dev/shm/x",
        "MONARCH_STAGING_NODE": "n1",
        "MONARCH_TIERS__0__CAPACITY": "1GiB",
    }

    config = load_text("", environ).config

    assert config.tiers[0].capacity == Size(SizeKind.BYTES, 4 << 30)
    assert config.tiers[1].path == "/l"
    assert config.retain == "node"
    assert config.programs.exclude == ("cp", "rsync")


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        (
            "FILL__CONCURENCY",
            "8",
            "fill.concurency: unknown key 'concurency'; did you mean 'concurrency'?",
        ),
        ("FIL__CONCURRENCY", "8", "fil: unknown key 'fil'; did you mean 'fill'?"),
        (
            "FILL__CONCURRENCY",
            "x",
            "fill.concurrency: 'x' is not valid; use auto, or a whole number from 1 to "
            "64",
        ),
        ("TIERS__2__NAME", "x", "no such item; use an index from 0 to 1"),
        ("LOG", "info", "log: 'info' is not valid; use a mapping of keys"),
        ("LOG__LEVEL__X", "1", "log.level: a mapping is not valid; use debug"),
        ("PROGRAMS__EXCLUDE", "[a", "not valid YAML: expected ',' or ']'"),
        ("TIERS__0__PATH", "${NO}", "tiers[0].path: the variable NO is not set"),
    ],
)
def test_fault_in_the_environment_names_the_variable(refusal, name, value, part):
    lines = refusal("", {f"MONARCH_STAGING_{name}": value})

    assert len(lines) == 1
    assert lines[0].startswith(f"MONARCH_STAGING_{name}: ")
    assert part in lines[0]


def test_options_replace_datasets_and_tiers_of_the_file(load_text, tmp_path):
    loaded = load_text(
        "datasets: [{path: /a}, {path: /b}]",
        data=("c", "/d"),
        tiers=("ram:40%", "ssd:200GiB:/local", "ssd:80%:/scratch:1"),
        report="r.json",
    )

    assert [d.path for d in loaded.config.datasets] == [f"{tmp_path}/c", "/d"]
    assert [(t.name, t.path) for t in loaded.config.tiers] == [
        ("ram", "/dev/shm"),
        ("ssd", "/local"),
        ("ssd-2", "/scratch:1"),
    ]
    assert loaded.config.report.file == f"{tmp_path}/r.json"
    assert loaded.origins["datasets[1].path"].described() == "option --data"
    assert loaded.origins["tiers[1].path"].name == "--tier ssd:200GiB:/local"


@pytest.mark.parametrize(
    "hosts",
    [
        {"text": "hosts: [n0, 'n[1-2]:7001']"},
        {"text": "hosts: 'n0,n[1-2]:7001'"},
        {"environ": {"MONARCH_STAGING_HOSTS": "n0,n[1-2]:7001"}},
        {"environ": {"MONARCH_STAGING_HOSTS": "['n0', 'n[1-2]:7001']"}},
        {"hosts": "n0 n[1-2]:7001"},
        {"text": "hosts: [x]", "hosts": "n0,n[1-2]:7001"},
    ],
    ids=["list", "text", "variable", "list in a variable", "option", "option first"],
)
def test_hosts_are_given_as_a_list_or_as_one_text(load_text, hosts):
    loaded = load_text(**hosts)

    assert loaded.config.hosts == ("n0", "n[1-2]:7001")


def test_the_option_for_the_secret_names_a_file_as_programs_do(load_text, tmp_path):
    loaded = load_text("peers: {secret_file: /a, timeout: 2s}", secret_file="key")

    assert loaded.config.peers.secret_file == f"{tmp_path}/key"
    assert loaded.config.peers.timeout == 2
    assert loaded.origins["peers.secret_file"].described() == "option --secret-file"


HOST = "NAME, NAME:PORT or a list such as n[0-3,7]"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("hosts: [a, 'b:x']", f"hosts[1]: 'b:x' is not valid; use {HOST}"),
        ("hosts: [7]", f"hosts[0]: 7 is not valid; use {HOST}"),
        ("hosts: 'n[0-'", f"hosts: 'n[0-' is not valid; use {HOST}"),
        ("hosts: ' '", f"hosts: ' ' is not valid; use {HOST}"),
        ("hosts: {a: 1}", "hosts: a mapping is not valid; use a list"),
        ("hosts: [n1, 'n[0-3]']", "hosts[1]: duplicate host 'n1' (first in hosts[0])"),
        ("peers: {mode: of}", "peers.mode: 'of' is not valid; use off, partition, "),
        (
            "peers: {port: 70000}",
            "peers.port: 70000 is not valid; use a number of at m",
        ),
        ("peers: {timeout: 1ms}", "use a duration from 50ms to 60s"),
        (
            "peers: {interface: 'ib 0'}",
            "peers.interface: 'ib 0' is not valid; use an int",
        ),
        ("peers: {transit: 5}", "peers.transit: 5 is not valid; use auto, or a size"),
        ("peers: {rendezvous: ''}", "peers.rendezvous: '' is not valid; use a path"),
        ("peers: {joint_timeout: 1s}", "; did you mean 'join_timeout'?"),
    ],
)
def test_fault_of_hosts_and_peers_names_the_key(refusal, text, line):
    (found,) = refusal(text)

    assert line in found


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"hosts": "a,b;c"}, f"--hosts: hosts[1]: 'b;c' is not valid; use {HOST}"),
        ({"hosts": ""}, f"--hosts: hosts: '' is not valid; use {HOST}"),
        ({"hosts": "a,a"}, "--hosts: hosts[1]: duplicate host 'a' (first in hosts[0])"),
        (
            {"secret_file": ""},
            "--secret-file: peers.secret_file: '' is not valid; use ",
        ),
        (
            {"environ": {"MONARCH_STAGING_HOSTS": "a]"}},
            "MONARCH_STAGING_HOSTS: hosts: 'a]' is not valid; use NAME",
        ),
        (
            {"environ": {"MONARCH_STAGING_PEERS__MODE": "false"}},
            "MONARCH_STAGING_PEERS__MODE: peers.mode: false is not valid; use off, ",
        ),
    ],
)
def test_fault_of_hosts_and_peers_names_the_option_or_variable(refusal, given, line):
    (found,) = refusal(**given)

    assert found.startswith(line)


def test_saved_index_belongs_to_exactly_one_dataset(load_text, refusal, tmp_path):
    loaded = load_text("datasets: [{path: /a}, {path: /b}]", data=("/c",), index="i")
    assert loaded.config.datasets[0].index == f"{tmp_path}/i"
    assert (
        load_text("datasets: [{path: /a}]", index="/i").config.datasets[0].index == "/i"
    )

    for text in ("datasets: [{path: /a}, {path: /b}]", ""):
        assert refusal(text, index="i")[0].startswith("--index: needs exactly one")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"settings": ("fill",)}, "--set fill: not of the form KEY=VALUE"),
        ({"settings": ("=8",)}, "--set =8: not of the form KEY=VALUE"),
        (
            {"settings": ("fill.concurrency=x",)},
            "--set fill.concurrency=x: fill.concurrency: 'x' is not valid; use auto, "
            "or a whole number from 1 to 64",
        ),
        (
            {"settings": ("tiers[3].path=/x",)},
            "--set tiers[3].path=/x: tiers[3].path: no such item; use an "
            "index from 0 to 1",
        ),
        ({"settings": ("a." * 5000 + "a=1",)}, "unknown key (of 5001 levels)"),
        (
            {"settings": (f"tiers[{'9' * 5000}].x=1",)},
            "a mapping is not valid; use a list",
        ),
        ({"settings": ("tiers[99999].name=1",)}, "a mapping is not valid; use a list"),
        (
            {"settings": ("tiers[1].name=b",)},
            "tiers[1].kind: missing key; every tier",
        ),
        (
            {"tiers": ("disk:8GiB",)},
            "'disk:8GiB' is not valid; use KIND:",
        ),
        ({"tiers": ("ram",)}, "'ram' is not valid; add a capacity, such as"),
        ({"tiers": ("ssd:1GB",)}, "add a directory, such as ssd:1GB:/local"),
        ({"tiers": ("ram:8G",)}, "--tier ram:8G: tiers[0].capacity: '8G' is not valid"),
        ({"data": ("",)}, "--data: datasets[0].path: '' is not valid; use a path"),
        (
            {"data": ("/\udcff",)},
            "--data: datasets[0].path: '/\\udcff' is not valid; use a",
        ),
    ],
)
def test_fault_in_an_option_names_the_option(refusal, options, line):
    lines = refusal("", **options)

    assert len(lines) == 1
    assert line in lines[0]
    assert lines[0].isprintable()


def test_tier_option_is_kind_capacity_and_path():
    assert parse_tier("ram:8GiB") == {"name": "ram", "kind": "ram", "capacity": "8GiB"}
    assert parse_tier("ssd:1TB:/a:b")["path"] == "/a:b"


def test_file_that_cannot_be_read_is_one_line(tmp_path, site_file):
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for name, reason in (
        ("absent.yaml", "No such file or directory"),
        ("folder", "Is a directory"),
        ("folder/x/y", "No such file or directory"),
        ("loop", "Too many levels of symbolic links"),
    ):
        with pytest.raises(ConfigError) as refused:
            load(RunOptions(config=name), {}, tmp_path)
        assert refused.value.lines == (f"{name}: cannot be read: {reason}",)
    with pytest.raises(ConfigError, match="cannot be read: embedded null byte"):
        load(RunOptions(config="a\0b"), {}, tmp_path)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_file_without_permission_is_one_line(tmp_path, site_file):
    path = tmp_path / "job.yaml"
    path.write_text("schema: 1")
    path.chmod(0)
    os.seteuid(65534)
    try:
        with pytest.raises(ConfigError, match=r"job\.yaml: cannot be read: Permission"):
            load(RunOptions(config=str(path)), {}, tmp_path)
    finally:
        os.seteuid(0)


def test_every_value_can_be_set_by_an_option_and_has_that_origin(load_text):
    values = Config().model_dump(mode="json", by_alias=True)
    given = {key_text(path): value_text(value) for path, value in leaves(values)}

    for key, text in given.items():
        loaded = load_text("", settings=(f"{key}={text}",))

        assert loaded.config == Config()
        if key != "datasets":
            assert loaded.origins[key].layer is Layer.OPTION


@pytest.mark.parametrize(
    ("tiers", "refused"),
    [
        ("[{name: a, kind: ram, capacity: 64MiB}]", True),
        ("[{name: a, kind: ram, capacity: 65MiB}]", False),
        ("[{name: a, kind: ram, capacity: 40%}]", False),
        ("[{name: a, kind: ssd, path: /s, capacity: 1MiB}]", False),
        (
            "[{name: a, kind: ram, capacity: 32MiB}, "
            "{name: b, kind: ram, path: /b, capacity: 33MiB}]",
            False,
        ),
    ],
)
def test_pool_that_leaves_nothing_of_the_ram_tiers_is_refused(
    refusal, load_text, tiers, refused
):
    text = f"tiers: {tiers}\npeers: {{transit: 64MiB}}\n"

    if not refused:
        assert str(load_text(text).config.peers.transit) == "64MiB"
        return
    (line,) = refusal(text)
    assert line.endswith(
        "peers.transit: 64MiB is a part of the ram tiers, which have 64.0 MiB; use "
        "less, auto, or larger tiers"
    )
