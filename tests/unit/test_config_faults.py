"""Tests of monarch.config: permitted values, and how faults are reported."""

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from monarch.config import (
    Config,
    RunOptions,
    from_json,
    load,
    require_datasets,
    schema,
    to_json,
)
from monarch.errors import ConfigError
from monarch.native import CONSTANTS
from monarch.tiers.pool import POOL_NAME
from monarch.units import Size, SizeKind


def test_every_value_is_read_in_its_own_unit(load_text):
    config = load_text(
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


def test_fill_without_a_limit_has_no_rate(load_text):
    assert load_text("fill: {bandwidth: unlimited}").config.fill.bytes_per_s is None


def test_the_readers_of_the_origin_are_unlimited_or_a_number(load_text):
    assert load_text("origin: {}").config.origin.readers is None
    assert load_text("origin: {max_readers: unlimited}").config.origin.readers is None
    assert load_text("origin: {max_readers: 12}").config.origin.readers == 12
    for value in ("0", "65537", "-1", "2.5", "true", "'4'", "null", "auto"):
        with pytest.raises(ConfigError) as caught:
            load_text(f"origin: {{max_readers: {value}}}")
        [line] = str(caught.value).splitlines()
        assert "origin.max_readers" in line
        assert line.endswith("use unlimited, or a whole number from 1 to 65536")


def test_fill_finds_its_concurrency_unless_a_number_is_set(load_text):
    assert load_text("fill: {}").config.fill.concurrency == "auto"
    assert load_text("fill: {concurrency: auto}").config.fill.at_once is None
    assert load_text("fill: {concurrency: 64}").config.fill.at_once == 64


def test_all_faults_are_named_at_once_with_place_and_nearest_key(refusal):
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

    lines = refusal(text)

    for expected in (
        "job.yaml:2:1: tirs: unknown key 'tirs'; did you mean 'tiers'?",
        "job.yaml:4:12: datasets[0].path: the variable NOPE is not set",
        "job.yaml:4:25: datasets[0].inclode: unknown key 'inclode'; did you mean "
        "'include'?",
        "job.yaml:5:5: datasets[1].path: missing key; every dataset needs a path",
        "job.yaml:7:12: tiers[0].name: 'RAM' is not valid; use a name of lower-case "
        "letters, digits and dashes",
        "job.yaml:7:23: tiers[0].kind: 'disk' is not valid; use ram or ssd",
        "job.yaml:7:39: tiers[0].capacity: '8G' is not valid; use auto, a size such as "
        "8GiB, a share such as 40%, or all-but 10GiB; did you mean '8GiB'?",
        "job.yaml:8:17: fill.enabled: 'no' is not valid; use true or false; "
        "did you mean 'false'?",
        "job.yaml:8:34: fill.concurrency: 'many' is not valid; use auto, or a whole "
        "number from 1 to 64",
        "job.yaml:9:19: cold_open.mode: 'autp' is not valid; use auto, wait or "
        "through; "
        "did you mean 'auto'?",
        "job.yaml:9:34: cold_open.timeout: 30 is not valid; use a duration from 100ms "
        "to "
        "1h, such as 30s; did you mean '30s'?",
        "job.yaml:10:9: retain: 'forever' is not valid; use job, node, or a duration "
        "such "
        "as 7d",
        "job.yaml:11:6: log: 'debug' is not valid; use a mapping of keys",
    ):
        assert expected in lines
    assert len(lines) == 13


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (
            "fill: {concurrency: 0}",
            "0 is not valid; use auto, or a whole number from 1 to 64",
        ),
        (
            "tiers: [{name: r, kind: ram, codec: gzip}]",
            "'gzip' is not valid; use plain, auto, none, lz4, lz4hc:LEVEL (1 to 12)",
        ),
        (
            "tiers: [{name: r, kind: ram, codec: lz4}]\ncold_open: {mode: through}",
            "lz4 is packed, and programs that do not wait never read it",
        ),
        (
            "tiers: [{name: r, kind: ram, eviction: lru}]\npeers: {copies: 2}",
            "lru contradicts peers.copies: copies leave the tier; use none, or no",
        ),
        (
            "tiers: [{name: r, kind: ram, eviction: lur}]",
            "'lur' is not valid; use none or lru; did you mean 'lru'?",
        ),
        (
            "peers: {copies: 2, mode: replicate}",
            "2 copies contradict peers.mode: replicate; use mode auto or partition",
        ),
        (
            "fill: {concurrency: 65}",
            "65 is not valid; use auto, or a whole number from 1 to 64",
        ),
        (
            "fill: {concurrency: 2.5}",
            "2.5 is not valid; use auto, or a whole number from 1 to 64",
        ),
        (
            "fill: {concurrency: true}",
            "true is not valid; use auto, or a whole number from 1 to 64",
        ),
        (
            "fill: {concurrency: '4'}",
            "'4' is not valid; use auto, or a whole number from 1 to 64",
        ),
        (
            "fill: {concurrency: null}",
            "null is not valid; use auto, or a whole number from 1 to 64",
        ),
        ("fill: {enabled: 1}", "1 is not valid; use true or false"),
        ("fill: {bandwidth: 0MB/s}", "'0MB/s' is not valid; use unlimited, or a rate"),
        ("fill: {bandwidth: 200MB}", "use unlimited, or a rate such as 200MB/s"),
        ("fill: []", "fill: a list is not valid; use a mapping of keys"),
        ("catalog: {wait_max: 8d}", "use a duration from 0s to 7d"),
        ("cold_open: {timeout: 10ms}", "use a duration from 100ms to 1h"),
        ("cold_open: {wait_max: 40%}", "'40%' is not valid; use a size such as 8GiB"),
        ("cold_open: {wait_max_whole: 4}", "4 is not valid; use a size such as 8GiB"),
        ("cold_open: {whole: '*.bin'}", "'*.bin' is not valid; use a list"),
        ("cold_open: {whole: [/a/*]}", "cold_open.whole[0]: '/a/*' is not valid"),
        ("cold_open: {whole: [7]}", "use a pattern such as **/*.jpg"),
        ("agent: {linger: -1s}", "'-1s' is not valid; use a duration"),
        ("retain: 0s", "'0s' is not valid; use job, node, or a duration"),
        ("retain: {days: 7}", "a mapping is not valid; use job, node, or a duration"),
        ("tiers: []", "an empty list is not valid; use at least 1 item"),
        ("tiers: ram", "'ram' is not valid; use a list"),
        ("tiers: [ram]", "tiers[0]: 'ram' is not valid; use a mapping of keys"),
        ("tiers: [{name: a, kind: ram, path: shm}]", "use an absolute path"),
        ("tiers: [{name: a, kind: ssd}]", "missing key 'path'; an ssd tier"),
        (
            "tiers: [{name: a, kind: ram, headroom: auto}]",
            "'auto' is not valid; use 0, a",
        ),
        ("tiers: [{name: a, kind: ram, capacity: unlimited}]", "use auto, a size"),
        (
            "tiers: [{name: a, kind: ram, capacity: 0}]",
            "0 is not valid; use auto, a size",
        ),
        (
            "tiers: [{name: a, kind: ram, capacity: 0B}]",
            "'0B' is not valid; use auto, a",
        ),
        ("tiers: [{name: 7, kind: ram}]", "7 is not valid; use a name of lower-case"),
        (f"tiers: [{{name: a, kind: ram, path: /{'x' * 128}}}]", "at most 128 bytes"),
        (f"tiers: [{{name: {'a' * 33}, kind: ram}}]", "of at most 32 bytes"),
        ("datasets: [{path: ''}]", "'' is not valid; use a path as text"),
        ("datasets: [{path: 7}]", "7 is not valid; use a path as text"),
        ("datasets: [{path: /}]", "'/' is not valid; use a directory below /"),
        ("datasets: [{path: /a/..}]", "use a directory below /"),
        (
            "datasets: [{path: ~/a}]",
            "'~/a' is not valid; use ${HOME} instead of ~",
        ),
        ("datasets: [{path: ~/a}]", "; did you mean '${HOME}/a'?"),
        ("datasets: [{path: ~}]", "null is not valid; use a path as text"),
        ('datasets: [{path: "/a\\0b"}]', "use a path as text"),
        (f"datasets: [{{path: /{'x' * 1024}}}]", "a path of at most 1024 bytes"),
        ("datasets: [{path: /a, include: '*.h5'}]", "'*.h5' is not valid; use a list"),
        ("datasets: [{path: /a, include: ['']}]", "use a pattern such as **/*.jpg"),
        ("datasets: [{path: /a, include: [/a/*]}]", "relative to path"),
        (
            "datasets: [{path: /a, exclude: [no, 1]}]",
            "exclude[1]: 1 is not valid; use a",
        ),
        (
            "programs: {exclude: [/usr/bin/cp]}",
            "the name of a program without its path",
        ),
        (f"programs: {{exclude: [{'x' * 32}]}}", "of at most 31 bytes"),
        ("report: {file: ''}", "use a path as text"),
        ("log: {level: warn}", "; did you mean 'warning'?"),
    ],
)
def test_value_out_of_its_range_is_refused(refusal, text, part):
    lines = refusal(text)

    assert len(lines) == 1
    assert part in lines[0]
    assert lines[0].startswith("job.yaml:1:")


def test_numbers_of_things_are_bounded(refusal):
    tiers = ", ".join(
        f"{{name: t{n}, kind: ssd, path: /t{n}, capacity: auto}}" for n in range(9)
    )
    datasets = ", ".join(f"{{path: /d{n}}}" for n in range(65))
    programs = ", ".join(f"p{n}" for n in range(33))

    lines = refusal(
        f"tiers: [{tiers}]\ndatasets: [{datasets}]\n"
        f"programs: {{exclude: [{programs}]}}",
    )

    assert [line.split(": ", 1)[1] for line in lines] == [
        "tiers: a list of 9 items is not valid; use at most 7 items",
        "datasets: a list of 65 items is not valid; use at most 64 items",
        "programs.exclude: a list of 33 items is not valid; use at most 32 items",
    ]


def test_names_and_directories_of_tiers_are_their_own(refusal):
    lines = refusal(
        "tiers:\n"
        "  - {name: a, kind: ram}\n"
        "  - {name: a, kind: ssd, path: /dev//shm/}\n"
        "  - {name: c, kind: ssd, path: /c}\n"
        "  - {name: transit, kind: ssd, path: /t}\n",
    )

    assert lines == (
        "job.yaml:3:12: tiers[1].name: duplicate name 'a' (first in tiers[0])",
        "job.yaml:3:32: tiers[1].path: duplicate path '/dev/shm' (first in tiers[0]); "
        "use one directory for each tier",
        "job.yaml:5:12: tiers[3].name: 'transit' is reserved for peers.transit; use "
        "another name",
    )


def test_shared_memory_has_room_for_all_tiers_and_the_pool_of_peers():
    assert CONSTANTS["TIERS_MAX"] == schema.TIERS_MAX + 1
    assert schema.POOL_NAME == POOL_NAME


def test_alias_inside_a_dataset_or_of_two_is_refused(refusal):
    lines = refusal(
        "datasets:\n"
        "  - {path: /a, aliases: [/x]}\n"
        "  - {path: /a/./}\n"
        "  - {path: /x/y/z}\n"
        "  - {path: /ab, aliases: [/a/q]}\n"
        "  - {path: /b, aliases: [/x]}\n",
    )

    assert lines == (
        "job.yaml:4:12: datasets[2].path: '/x/y/z' is inside '/x' "
        "(datasets[0].aliases[0]); datasets must not overlap",
        "job.yaml:5:27: datasets[3].aliases[0]: '/a/q' is inside '/a' "
        "(datasets[0].path); datasets must not overlap",
        "job.yaml:6:26: datasets[4].aliases[0]: duplicate path '/x' (first in "
        "datasets[0].aliases[0])",
    )


def test_faults_beside_each_other_do_not_hide_the_ones_of_single_values(refusal):
    lines = refusal(
        "a: 1\na: 2\nfill: {concurrency: 0}\n", {"MONARCH_STAGING_LOG__LEVEL": "x"}
    )

    assert [line.split(" ")[0] for line in lines] == [
        "job.yaml:1:1:",
        "job.yaml:2:1:",
        "job.yaml:3:21:",
        "MONARCH_STAGING_LOG__LEVEL:",
    ]


def test_faults_are_listed_in_the_order_of_the_file(refusal):
    lines = refusal("zz: 1\nretain: x\nfill: {zz: 1}\ndatasets: 5\n")

    assert [line.split(": ")[0] for line in lines] == [
        "job.yaml:1:1",
        "job.yaml:2:9",
        "job.yaml:3:8",
        "job.yaml:4:11",
    ]


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("MONARCH_STAGING_DISABLED", "did you mean MONARCH_STAGING_DISABLE?"),
        ("MONARCH_STAGING_RETAINS", "did you mean MONARCH_STAGING_RETAIN?"),
        (
            "MONARCH_STAGING_XYZZY",
            "variables of keys are named MONARCH_STAGING_SECTION__KEY",
        ),
    ],
)
def test_variable_that_nothing_reads_is_refused(refusal, variable, hint):
    lines = refusal("", {variable: "1", "MONARCH_STAGING_RUN_DIR": "/r"})

    assert lines == (f"{variable}: unknown variable; {hint}",)


@pytest.mark.parametrize("schema", ["2", "'1'", "true", "0", "1.0", "[1]"])
def test_file_of_another_schema_is_refused_before_all_else(refusal, schema):
    lines = refusal(f"schema: {schema}\nnew_key: 1\nother: 2\n")

    assert len(lines) == 1
    assert lines[0].startswith("job.yaml:1:9: schema: ")
    assert lines[0].endswith(" is not supported; this version uses 1")


def test_variables_are_expanded_in_paths_only(load_text, tmp_path):
    environ = {"TMPDIR": "/local/tmp", "USER": "ada", "DIR": "data"}

    config = load_text(
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


def test_variable_that_is_not_set_or_empty_is_named(refusal):
    lines = refusal("datasets: [{path: '${A}'}, {path: '${B}/x'}]", {"B": ""})

    assert lines[0].endswith("the variable A is not set")
    assert lines[1].endswith("the variable B is empty")


def test_variable_with_a_relative_value_is_no_tier_path(refusal):
    lines = refusal(
        "tiers: [{name: a, kind: ssd, path: '${T}', capacity: 1GB}]", {"T": "tmp"}
    )

    assert "'${T}' is not valid; use an absolute path" in lines[0]


def test_line_about_a_fault_is_printable_whatever_was_given(refusal):
    for setting in ("a\nb=1", "fill.\udcff=1", "log.level=\x1b[31m"):
        for line in refusal("", settings=(setting,)):
            assert line.isprintable()


def test_path_below_a_directory_that_is_not_in_utf8_is_refused(tmp_path, site_file):
    with pytest.raises(ConfigError, match="use a path in UTF-8"):
        load(RunOptions(data=("x",)), {}, tmp_path / "\udcff")


KEYS = st.sampled_from(
    [*Config().model_dump(by_alias=True), "path", "name", "kind", "capacity", "<<", "x"]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.sampled_from(["ram", "ssd", "auto", "8GiB", "30s", "/a", "${X}", "~", "**", ""]),
    st.text(max_size=8),
)
TREES = st.recursive(
    SCALARS,
    lambda below: st.one_of(
        st.lists(below, max_size=3), st.dictionaries(KEYS, below, max_size=4)
    ),
    max_leaves=12,
)


QUIET = settings(
    # Files of one test overwrite each other, which is harmless.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def lines_or_json(load_it):
    """Return the lines of a refusal, or what was loaded after a way through JSON."""
    try:
        config = load_it().config
    except ConfigError as error:
        return error.lines
    return config, from_json(to_json(config))


@QUIET
@given(st.dictionaries(KEYS, TREES, max_size=5))
def test_any_tree_is_loaded_or_refused_with_lines(load_text, tree):
    result = lines_or_json(lambda: load_text(yaml.safe_dump(tree, allow_unicode=True)))

    if isinstance(result[0], Config):
        assert result[0] == result[1]
    else:
        assert all(line.startswith("job.yaml:") for line in result)
        assert all(line.isprintable() for line in result)


@QUIET
@example(b"!$")
@given(st.binary(max_size=200))
def test_any_bytes_are_loaded_or_refused_with_lines(tmp_path, site_file, raw):
    (tmp_path / "monarch.yaml").write_bytes(raw)

    result = lines_or_json(lambda: load(RunOptions(), {}, tmp_path))

    if isinstance(result[0], Config):
        assert result[0] == Config()
    else:
        assert all(line.isprintable() for line in result)
