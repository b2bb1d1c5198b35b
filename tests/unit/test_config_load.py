"""Tests of monarch.config: the layers, what is refused, and how it is said."""

import os

import pytest

from monarch.config import (
    Config,
    Layer,
    RunOptions,
    digest,
    from_json,
    json_schema,
    leaves,
    load,
    parse_tier,
    require_datasets,
    to_json,
)
from monarch.config import files as config_files
from monarch.config.template import value_text
from monarch.config.tree import key_path, key_text
from monarch.errors import ConfigError, UsageError
from monarch.units import Size, SizeKind


@pytest.fixture
def site(tmp_path, monkeypatch):
    """The machine's own file, which does not exist unless a test writes it."""
    path = tmp_path / "etc.yaml"
    monkeypatch.setattr(config_files, "SITE_FILE", path)
    return path


@pytest.fixture
def run(tmp_path, site):
    """Load a configuration text as `job.yaml`."""

    def load_text(text="", environ=None, **options):
        (tmp_path / "job.yaml").write_text(text)
        return load(RunOptions(config="job.yaml", **options), environ or {}, tmp_path)

    return load_text


def refusal(run, *args, **kwargs):
    with pytest.raises(ConfigError) as refused:
        run(*args, **kwargs)
    assert str(refused.value) == "\n".join(refused.value.lines)
    return refused.value.lines


def test_nothing_at_all_gives_the_defaults(tmp_path, site):
    loaded = load(RunOptions(), {}, tmp_path)

    assert loaded.config == Config()
    assert loaded.files == ()
    assert {where.layer for where in loaded.origins.values()} == {Layer.DEFAULT}
    assert loaded.config.tiers[0].capacity == Size(SizeKind.AUTO)
    assert loaded.config.retain == "job"
    with pytest.raises(UsageError, match="--data PATH"):
        require_datasets(loaded.config)


def test_every_value_is_read_in_its_own_unit(run):
    config = run(
        """
schema: 1
datasets: [{path: /pfs/a, aliases: [/b/a], include: ["*.h5"], exclude: [x], never: []}]
tiers:
  - {name: ram, kind: ram, capacity: 40%, headroom: 0}
  - {name: ssd-2, kind: ssd, path: /local, capacity: all-but 10GiB, headroom: 5%}
cold_open: {mode: through, wait_max: 1MiB, timeout: 500ms}
fill: {enabled: false, concurrency: 8, bandwidth: 200MB/s}
catalog: {wait_max: 1h, scan_threads: 2}
agent: {linger: 0s}
programs: {exclude: [rsync]}
report: {file: out/r.json}
retain: 7d
log: {level: debug}
"""
    ).config

    assert config.datasets[0].include == ("*.h5",)
    assert config.tiers[0].capacity.of(1000) == 400
    assert config.tiers[1].capacity == Size(SizeKind.ALL_BUT, 10 << 30)
    assert config.cold_open.wait_max == 1 << 20
    assert config.cold_open.timeout == 0.5
    assert config.fill.bytes_per_s == 200_000_000
    assert config.catalog.wait_max == 3600
    assert config.report.file is not None
    assert config.report.file.endswith("/out/r.json")
    assert config.retain == 604800
    require_datasets(config)


def test_fill_without_a_limit_has_no_rate(run):
    assert run("fill: {bandwidth: unlimited}").config.fill.bytes_per_s is None


def test_all_faults_are_named_at_once_with_place_and_nearest_key(run):
    text = """schema: 1
tirs: []
datasets:
  - {path: "${NOPE}/x", inclode: ["**"]}
  - {include: ["**"]}
tiers:
  - {name: RAM, kind: disk, capacity: 8G}
fill: {enabled: no, concurrency: many}
cold_open: {mode: autp, timeout: 30}
retain: forever
log: debug
"""

    lines = refusal(run, text)

    for expected in (
        "job.yaml:2:1: tirs: found an unknown key, allowed agent, catalog, cold_open, "
        "datasets, fill, log, programs, report, retain, schema, tiers "
        "(did you mean tiers?)",
        "job.yaml:4:12: datasets[0].path: found '${NOPE}/x', allowed variables that "
        "are set (NOPE is not set)",
        "job.yaml:4:25: datasets[0].inclode: found an unknown key, allowed aliases, "
        "exclude, include, index, never, path (did you mean include?)",
        "job.yaml:5:5: datasets[1].path: found no path, allowed a dataset with a path",
        "job.yaml:7:12: tiers[0].name: found 'RAM', allowed a name of lower-case "
        "letters, digits and dashes",
        "job.yaml:7:23: tiers[0].kind: found 'disk', allowed ram or ssd",
        "job.yaml:7:39: tiers[0].capacity: found '8G', allowed auto, a size such as "
        "8GiB, a share such as 40%, or all-but 10GiB (did you mean 8GiB?)",
        "job.yaml:8:17: fill.enabled: found 'no', allowed true or false "
        "(did you mean false?)",
        "job.yaml:8:34: fill.concurrency: found 'many', allowed a whole number",
        "job.yaml:9:19: cold_open.mode: found 'autp', allowed auto, wait or through "
        "(did you mean auto?)",
        "job.yaml:9:34: cold_open.timeout: found 30, allowed a duration from 100ms to "
        "1h, such as 30s (did you mean 30s?)",
        "job.yaml:10:9: retain: found 'forever', allowed job, node, or a duration such "
        "as 7d",
        "job.yaml:11:6: log: found 'debug', allowed a mapping of keys",
    ):
        assert expected in lines
    assert len(lines) == 13


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("fill: {concurrency: 0}", "found 0, allowed a number of at least 1"),
        ("fill: {concurrency: 65}", "found 65, allowed a number of at most 64"),
        ("fill: {concurrency: 2.5}", "found 2.5, allowed a whole number"),
        ("fill: {concurrency: true}", "found true, allowed a whole number"),
        ("fill: {concurrency: '4'}", "found '4', allowed a whole number"),
        ("fill: {concurrency: null}", "found nothing, allowed a whole number"),
        ("fill: {enabled: 1}", "found 1, allowed true or false"),
        ("fill: {bandwidth: 0MB/s}", "found '0MB/s', allowed unlimited, or a rate"),
        ("fill: {bandwidth: 200MB}", "allowed unlimited, or a rate such as 200MB/s"),
        ("fill: []", "fill: found a list, allowed a mapping of keys"),
        ("catalog: {wait_max: 8d}", "allowed a duration from 0s to 7d"),
        ("cold_open: {timeout: 10ms}", "allowed a duration from 100ms to 1h"),
        ("cold_open: {wait_max: 40%}", "found '40%', allowed a size such as 8GiB"),
        ("agent: {linger: -1s}", "found '-1s', allowed a duration"),
        ("retain: 0s", "found '0s', allowed job, node, or a duration"),
        ("retain: {days: 7}", "found a mapping, allowed job, node, or a duration"),
        ("tiers: []", "found a list, allowed at least 1 item"),
        ("tiers: ram", "found 'ram', allowed a list"),
        ("tiers: [ram]", "tiers[0]: found 'ram', allowed a mapping of keys"),
        ("tiers: [{name: a, kind: ram, path: shm}]", "allowed an absolute path"),
        ("tiers: [{name: a, kind: ssd}]", "found no path, allowed a path such as"),
        ("tiers: [{name: a, kind: ram, headroom: auto}]", "found 'auto', allowed 0, a"),
        ("tiers: [{name: a, kind: ram, capacity: unlimited}]", "allowed auto, a size"),
        ("tiers: [{name: 7, kind: ram}]", "found 7, allowed a name of lower-case"),
        (f"tiers: [{{name: a, kind: ram, path: /{'x' * 128}}}]", "at most 128 bytes"),
        (f"tiers: [{{name: {'a' * 33}, kind: ram}}]", "of at most 32 bytes"),
        ("datasets: [{path: ''}]", "found '', allowed a path as text"),
        ("datasets: [{path: 7}]", "found 7, allowed a path as text"),
        ("datasets: [{path: /}]", "found '/', allowed a directory below /"),
        ("datasets: [{path: /a/..}]", "allowed a directory below /"),
        (
            "datasets: [{path: ~/a}]",
            "found '~/a', allowed a path without ~",
        ),
        ("datasets: [{path: ~/a}]", "(did you mean ${HOME}/a?)"),
        ("datasets: [{path: ~}]", "found nothing, allowed a path as text"),
        ('datasets: [{path: "/a\\0b"}]', "allowed a path as text"),
        (f"datasets: [{{path: /{'x' * 1024}}}]", "a path of at most 1024 bytes"),
        ("datasets: [{path: /a, include: '*.h5'}]", "found '*.h5', allowed a list"),
        ("datasets: [{path: /a, include: ['']}]", "allowed a pattern such as **/*.jpg"),
        ("datasets: [{path: /a, include: [/a/*]}]", "relative to path"),
        ("datasets: [{path: /a, exclude: [no, 1]}]", "exclude[1]: found 1, allowed a"),
        (
            "programs: {exclude: [/usr/bin/cp]}",
            "the name of a program without its path",
        ),
        (f"programs: {{exclude: [{'x' * 32}]}}", "of at most 31 bytes"),
        ("report: {file: ''}", "allowed a path as text"),
        ("log: {level: warn}", "(did you mean warning?)"),
    ],
)
def test_value_out_of_its_range_is_refused(run, text, part):
    lines = refusal(run, text)

    assert len(lines) == 1
    assert part in lines[0]
    assert lines[0].startswith("job.yaml:1:")


def test_numbers_of_things_are_bounded(run):
    tiers = ", ".join(
        f"{{name: t{n}, kind: ssd, path: /t{n}, capacity: auto}}" for n in range(9)
    )
    datasets = ", ".join(f"{{path: /d{n}}}" for n in range(65))
    programs = ", ".join(f"p{n}" for n in range(33))

    lines = refusal(
        run,
        f"tiers: [{tiers}]\ndatasets: [{datasets}]\n"
        f"programs: {{exclude: [{programs}]}}",
    )

    assert [line.split(": ", 1)[1] for line in lines] == [
        "datasets: found 65 items, allowed at most 64 items",
        "tiers: found 9 items, allowed at most 8 items",
        "programs.exclude: found 33 items, allowed at most 32 items",
    ]


def test_names_and_directories_of_tiers_are_their_own(run):
    lines = refusal(
        run,
        "tiers:\n"
        "  - {name: a, kind: ram}\n"
        "  - {name: a, kind: ssd, path: /dev//shm/}\n"
        "  - {name: c, kind: ssd, path: /c}\n",
    )

    assert lines == (
        "job.yaml:3:12: tiers[1].name: found 'a' again (tiers[0] has it)",
        "job.yaml:3:32: tiers[1].path: found '/dev/shm' again, allowed one tier in a "
        "directory (tiers[0] is in it)",
    )


def test_dataset_given_twice_or_inside_another_is_refused(run):
    lines = refusal(
        run,
        "datasets:\n"
        "  - {path: /a, aliases: [/x]}\n"
        "  - {path: /a/./}\n"
        "  - {path: /x/y/z}\n"
        "  - {path: /ab, aliases: [/a/q]}\n"
        "  - {path: /b}\n",
    )

    assert lines == (
        "job.yaml:3:12: datasets[1].path: found '/a' again (it is datasets[0].path "
        "already)",
        "job.yaml:4:12: datasets[2].path: found '/x/y/z', allowed a directory not "
        "inside '/x', which is datasets[0].aliases[0]",
        "job.yaml:5:27: datasets[3].aliases[0]: found '/a/q', allowed a directory not "
        "inside '/a', which is datasets[0].path",
    )


def test_faults_beside_each_other_do_not_hide_the_ones_of_single_values(run):
    lines = refusal(
        run, "a: 1\na: 2\nfill: {concurrency: 0}\n", {"MONARCH_STAGING_LOG__LEVEL": "x"}
    )

    assert [line.split(" ")[0] for line in lines] == [
        "job.yaml:2:1:",
        "job.yaml:3:21:",
        "MONARCH_STAGING_LOG__LEVEL:",
        "job.yaml:1:1:",
    ]


@pytest.mark.parametrize("schema", ["2", "'1'", "true", "0", "1.0", "[1]"])
def test_file_of_another_schema_is_refused_before_all_else(run, schema):
    lines = refusal(run, f"schema: {schema}\nnew_key: 1\nother: 2\n")

    assert len(lines) == 1
    assert lines[0].startswith("job.yaml:1:9: schema: found ")
    assert lines[0].endswith(", allowed 1 in this version")


def test_variables_stand_for_their_values_in_paths_alone(run, tmp_path):
    environ = {"TMPDIR": "/local/tmp", "USER": "ada", "DIR": "data"}

    config = run(
        'datasets: [{path: "${DIR}/${USER}", aliases: ["/${USER}"], '
        'include: ["${USER}"], index: "${TMPDIR}/i"}]\n'
        'tiers: [{name: ssd, kind: ssd, path: "${TMPDIR}//x/../y", capacity: auto}]\n'
        "report: {file: '${USER}-$USER.json'}",
        environ,
    ).config

    assert config.datasets[0].path == f"{tmp_path}/data/ada"
    assert config.datasets[0].aliases == ("/ada",)
    assert config.datasets[0].include == ("${USER}",)
    assert config.datasets[0].index == "/local/tmp/i"
    assert config.tiers[0].path == "/local/tmp/y"
    assert config.report.file == f"{tmp_path}/ada-$USER.json"


def test_variable_that_is_not_set_or_empty_is_named(run):
    lines = refusal(run, "datasets: [{path: '${A}'}, {path: '${B}/x'}]", {"B": ""})

    assert lines[0].endswith(
        "found '${A}', allowed variables that are set (A is not set)"
    )
    assert lines[1].endswith(
        "found '${B}/x', allowed variables that are set (B is empty)"
    )


def test_variable_with_a_relative_value_is_no_tier_path(run):
    lines = refusal(
        run, "tiers: [{name: a, kind: ssd, path: '${T}', capacity: 1GB}]", {"T": "tmp"}
    )

    assert "found '${T}', allowed an absolute path" in lines[0]


def test_stronger_layer_takes_the_place_of_a_weaker_one(tmp_path, site):
    site.write_text("fill: {concurrency: 1, bandwidth: 1MB/s}\nagent: {linger: 1s}\n")
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
    assert origin["fill.bandwidth"] == f"site file {site}:1"
    assert loaded.config.agent.linger == 2
    assert origin["agent.linger"] == "site file site.yaml:1"
    assert loaded.config.fill.concurrency == 3
    assert origin["fill.concurrency"] == "job.yaml:1"
    assert loaded.config.log.level == "warning"
    assert origin["log.level"] == "environment MONARCH_STAGING_LOG__LEVEL"
    assert loaded.config.cold_open.mode == "through"
    assert origin["cold_open.mode"] == "option --set cold_open.mode=through"
    assert origin["cold_open.timeout"] == "default"
    assert loaded.files == (site, tmp_path / "site.yaml", tmp_path / "job.yaml")


def test_first_file_of_the_search_order_holds(tmp_path, site):
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
    assert concurrency() == 4


def test_sections_left_empty_change_nothing(run):
    assert run("fill:\ntiers:\nretain:\nschema:\n").config == Config()


def test_list_of_a_file_replaces_the_one_below(run, site):
    site.write_text("tiers: [{name: site, kind: ssd, path: /s}, {name: b, kind: ram}]")

    assert [tier.name for tier in run("log: {}").config.tiers] == ["site", "b"]
    assert [
        tier.name for tier in run("tiers: [{name: x, kind: ram}]").config.tiers
    ] == ["x"]


def test_environment_reaches_into_lists_and_sections(run):
    environ = {
        "MONARCH_STAGING_TIERS__0__CAPACITY": "4GiB",
        "MONARCH_STAGING_TIERS__1": "{name: ssd, kind: ssd, path: /l}",
        "MONARCH_STAGING_RETAIN": "node",
        "MONARCH_STAGING_PROGRAMS__EXCLUDE": "[cp, rsync]",
        "MONARCH_STAGING_RUN_DIR": "/dev/shm/x",
        "MONARCH_STAGING_NODE": "n1",
        "MONARCH_TIERS__0__CAPACITY": "1GiB",
    }

    config = run("", environ).config

    assert config.tiers[0].capacity == Size(SizeKind.BYTES, 4 << 30)
    assert config.tiers[1].path == "/l"
    assert config.retain == "node"
    assert config.programs.exclude == ("cp", "rsync")


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("FILL__CONCURENCY", "8", "fill.concurency: found an unknown key"),
        ("FIL__CONCURRENCY", "8", "fil: found an unknown key"),
        (
            "FILL__CONCURRENCY",
            "x",
            "fill.concurrency: found 'x', allowed a whole number",
        ),
        ("TIERS__2__NAME", "x", "found no such item, allowed an index from 0 to 1"),
        ("LOG", "info", "log: found 'info', allowed a mapping of keys"),
        ("LOG__LEVEL__X", "1", "log.level: found a mapping, allowed debug"),
        ("PROGRAMS__EXCLUDE", "[a", "not valid YAML: expected ',' or ']'"),
        ("TIERS__0__PATH", "${NO}", "tiers[0].path: found '${NO}', allowed variables"),
    ],
)
def test_fault_in_the_environment_names_the_variable(run, name, value, part):
    lines = refusal(run, "", {f"MONARCH_STAGING_{name}": value})

    assert len(lines) == 1
    assert lines[0].startswith(f"MONARCH_STAGING_{name}: ")
    assert part in lines[0]


def test_options_replace_datasets_and_tiers_of_the_file(run, tmp_path):
    loaded = run(
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


def test_saved_index_belongs_to_exactly_one_dataset(run, tmp_path):
    loaded = run("datasets: [{path: /a}, {path: /b}]", data=("/c",), index="i")
    assert loaded.config.datasets[0].index == f"{tmp_path}/i"
    assert run("datasets: [{path: /a}]", index="/i").config.datasets[0].index == "/i"

    for text in ("datasets: [{path: /a}, {path: /b}]", ""):
        assert refusal(run, text, index="i")[0].startswith("--index: found several")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"settings": ("fill",)}, "--set fill: found no value, allowed KEY=VALUE"),
        ({"settings": ("=8",)}, "--set =8: found no value, allowed KEY=VALUE"),
        (
            {"settings": ("fill.concurrency=x",)},
            "--set fill.concurrency=x: fill.concurrency: found 'x', allowed a whole "
            "number",
        ),
        (
            {"settings": ("tiers[3].path=/x",)},
            "--set tiers[3].path=/x: tiers[3].path: found no such item, allowed an "
            "index from 0 to 1",
        ),
        ({"tiers": ("disk:8GiB",)}, "found 'disk:8GiB', allowed KIND:CAPACITY[:PATH]"),
        ({"tiers": ("ram",)}, "found 'ram', allowed a capacity after ram:"),
        ({"tiers": ("ssd:1GB",)}, "allowed a directory after the capacity"),
        ({"tiers": ("ram:8G",)}, "--tier ram:8G: tiers[0].capacity: found '8G'"),
        ({"data": ("",)}, "--data: datasets[0].path: found '', allowed a path"),
        ({"data": ("/a", "/a/b")}, "--data: datasets[1].path: found '/a/b', allowed a"),
        (
            {"data": ("/\udcff",)},
            "--data: datasets[0].path: found '/\\udcff', allowed a",
        ),
    ],
)
def test_fault_in_an_option_names_the_option(run, options, line):
    lines = refusal(run, "", **options)

    assert len(lines) == 1
    assert line in lines[0]
    assert lines[0].isprintable()


def test_tier_option_is_kind_capacity_and_path():
    assert parse_tier("ram:8GiB") == {"name": "ram", "kind": "ram", "capacity": "8GiB"}
    assert parse_tier("ssd:1TB:/a:b")["path"] == "/a:b"


def test_file_that_cannot_be_read_is_one_line(tmp_path, site):
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
def test_file_without_permission_is_one_line(tmp_path, site):
    path = tmp_path / "job.yaml"
    path.write_text("schema: 1")
    path.chmod(0)
    os.seteuid(65534)
    try:
        with pytest.raises(ConfigError, match=r"job\.yaml: cannot be read: Permission"):
            load(RunOptions(config=str(path)), {}, tmp_path)
    finally:
        os.seteuid(0)


def test_configuration_round_trips_as_json(run):
    config = run(
        "datasets: [{path: /a}]\n"
        "tiers: [{name: r, kind: ram, capacity: 12.5%, headroom: 1GiB}]\n"
        "fill: {bandwidth: 200MB/s}\nretain: 90min\ncold_open: {timeout: 1.25s}"
    ).config

    text = to_json(config)

    assert from_json(text) == config
    assert to_json(from_json(text)) == text
    assert digest(from_json(text)) == digest(config)
    assert len(digest(config)) == 16
    assert digest(config) != digest(Config())


def test_broken_json_is_a_configuration_error():
    with pytest.raises(ConfigError):
        from_json("{")
    with pytest.raises(ConfigError, match=r"fill\.concurrency: found 0, allowed"):
        from_json('{"fill": {"concurrency": 0}}')


def test_json_keeps_a_dollar_that_is_no_variable_any_more(run):
    config = run("datasets: [{path: '/a/${X}'}]", {"X": "${Y}"}).config

    assert config.datasets[0].path == "/a/${Y}"
    assert from_json(to_json(config)) == config


def test_json_schema_describes_every_key():
    schema = json_schema()

    assert set(schema["properties"]) == set(Config().model_dump(by_alias=True))
    assert schema["additionalProperties"] is False
    wait_max = schema["$defs"]["ColdOpen"]["properties"]["wait_max"]
    assert wait_max["type"] == "string"
    assert wait_max["default"] == "8MiB"
    for definition in [schema, *schema["$defs"].values()]:
        for name, form in definition["properties"].items():
            assert "description" in form or "$ref" in form, name


def test_configuration_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Config().fill.concurrency = 9  # type: ignore[misc]


def test_leaves_have_the_paths_that_options_take():
    values = Config().model_dump(mode="json", by_alias=True)

    for path, _ in leaves(values):
        assert key_path(key_text(path)) == path
    assert key_path("tiers.0.capacity") == ("tiers", 0, "capacity")


def test_every_value_can_be_set_by_an_option_and_has_that_origin(run):
    values = Config().model_dump(mode="json", by_alias=True)
    given = {key_text(path): value_text(value) for path, value in leaves(values)}

    for key, text in given.items():
        loaded = run("", settings=(f"{key}={text}",))

        assert loaded.config == Config()
        if key != "datasets":
            assert loaded.origins[key].layer is Layer.OPTION


def test_line_about_a_fault_is_printable_whatever_was_given(run):
    for setting in ("a\nb=1", "fill.\udcff=1", "log.level=\x1b[31m"):
        for line in refusal(run, "", settings=(setting,)):
            assert line.isprintable()


def test_path_below_a_directory_that_is_not_in_utf8_is_refused(tmp_path, site):
    with pytest.raises(ConfigError, match="allowed a path in UTF-8"):
        load(RunOptions(data=("x",)), {}, tmp_path / "\udcff")
