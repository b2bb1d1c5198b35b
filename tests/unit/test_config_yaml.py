"""Tests of monarch.config.yaml: which YAML is accepted, and which is refused."""

import pytest

from monarch.config.overrides import read_value
from monarch.config.tree import Layer, Refused, Where, find, plain
from monarch.config.yaml import FILE_BYTES_MAX, read_file, read_text

HERE = Where(Layer.OPTION, "--set x")


@pytest.fixture
def read(tmp_path):
    def read_bytes(raw):
        path = tmp_path / "a.yaml"
        path.write_bytes(raw if isinstance(raw, bytes) else raw.encode())
        return read_file(path, "a.yaml", Layer.FILE)

    return read_bytes


def refusal(read, raw):
    with pytest.raises(Refused) as refused:
        read(raw)
    return [str(fault) for fault in refused.value.faults]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("true", True),
        ("false", False),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("NO", "NO"),
        ("y", "y"),
        ("True", "True"),
        ("TRUE", "TRUE"),
        ("0700", "0700"),
        ("0o17", "0o17"),
        ("0x1F", "0x1F"),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2026-11-21", "2026-11-21"),
        ("7", 7),
        ("0", 0),
        ("-3", -3),
        ("1.5", 1.5),
        ("1.5e3", 1500.0),
        (".5", ".5"),
        ("1e3", "1e3"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("~", None),
        ("null", None),
        ("Null", None),
        ("", None),
        ("nullable", "nullable"),
        ("trueish", "trueish"),
        ("7d", "7d"),
        ("40%", "40%"),
        ("=", "="),
        ("'no'", "no"),
        ('"true"', "true"),
        ('"7"', "7"),
        ("!!str 7", "7"),
        ("${TMPDIR}/x", "${TMPDIR}/x"),
        ("[a, 1, true, no]", ["a", 1, True, "no"]),
        ("|-\n  two\n  lines", "two\nlines"),
    ],
)
def test_words_are_parsed_to_the_values_that_they_spell(read, written, value):
    result = plain(find(read(f"x: {written}\n"), ["x"]))

    assert result == value
    assert type(result) is type(value)


def test_every_value_and_key_knows_its_place(read):
    tree = read("a: 1\nb:\n  - {c: two}\n")

    leaf = find(tree, ["b", 0, "c"])
    assert (leaf.where.line, leaf.where.column) == (3, 9)
    assert leaf.key is not None
    assert str(leaf.key) == "a.yaml:3:6"


def test_aliases_and_merge_keys_are_understood(read):
    tree = read(
        "base: &base {kind: ssd, capacity: 80%}\n"
        "one: {<<: *base, path: /a}\n"
        "two: {path: /b, <<: [{kind: ram}, *base], capacity: 1GiB}\n"
        "three: *base\n"
    )

    assert plain(tree) == {
        "base": {"kind": "ssd", "capacity": "80%"},
        "one": {"kind": "ssd", "capacity": "80%", "path": "/a"},
        "two": {"kind": "ram", "capacity": "1GiB", "path": "/b"},
        "three": {"kind": "ssd", "capacity": "80%"},
    }


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ("a: 1\nb: 2\na: 3\n", "a.yaml:3:1: a: duplicate key (first on line 1)"),
        ("a: {b: 1, b: 2}\n", "a.yaml:1:11: b: duplicate key (first on line 1)"),
        (
            "a: &a {}\nb: {<<: *a, <<: *a}\n",
            "a.yaml:2:13: <<: duplicate key",
        ),
        ("a: 1\n\tb: 2\n", "a.yaml:2:1: not valid YAML: found character '\\t'"),
        ("a: b: c\n", "a.yaml:1:5: not valid YAML: mapping values are not allowed"),
        ("a: [1, 2\n", "a.yaml:2:1: not valid YAML: expected ',' or ']'"),
        ("a: 'open\n", "a.yaml:2:1: not valid YAML: found unexpected end of stream"),
        ("a: %x\n", "a.yaml:1:4: not valid YAML: found character '%'"),
        ("a: @x\n", "a.yaml:1:4: not valid YAML: found character '@'"),
        ("a: *b\n", "a.yaml:1:4: not valid YAML: found undefined alias 'b'"),
        ("a: 1\n---\nb: 2\n", "a.yaml:2:1: not valid YAML: more than one document"),
        ("- a\n- b\n", "a.yaml:1:1: a list is not valid; use keys such as"),
        ("just words\n", "a.yaml:1:1: 'just words' is not valid; use keys such as"),
        ("1: x\n", "a.yaml:1:1: the key '1' is not text"),
        ("true: x\n", "a.yaml:1:1: the key 'true' is not text"),
        ("? [a, b]\n: x\n", "a.yaml:1:3: the key a list is not text"),
        ("a: !!python/name:os.system\n", "the tag '!!python/name:os.system'"),
        ("a: !secret x\n", "a.yaml:1:4: the tag '!secret' is not supported"),
        ("a: !!binary aGk=\n", "the tag '!!binary' is not supported"),
        ("a: !!int seven\n", "the tag '!!int' is not supported"),
        ("a: !!set {x}\n", "the tag '!!set' is not supported"),
        ("a: {<<: 7}\n", "a.yaml:1:9: <<: 7 cannot be merged; use a mapping"),
        ("a: &a [*a]\n", "a.yaml:1:4: the alias refers to its own parent"),
        ("a: &a {b: *a}\n", "a.yaml:1:4: the alias refers to its own parent"),
        ("a: \x07\n", "a.yaml:1:4: the character '\\x07' is not allowed"),
        (b"a: 1\nb: \xff\n", "a.yaml:2:4: byte 0xff is not valid UTF-8"),
        ("a: 1\n".encode("utf-16"), "a.yaml:1:1: byte 0xff is not valid"),
    ],
)
def test_ambiguous_yaml_is_one_clear_line(read, written, line):
    lines = refusal(read, written)

    assert len(lines) == 1
    assert line in lines[0]
    assert "\n" not in lines[0]


def test_several_repeated_keys_are_reported_at_once(read):
    lines = refusal(read, "a: 1\na: 2\nb: {c: 1, c: 2}\n")

    assert [line.split(":")[1] for line in lines] == ["2", "3"]
    assert "first on line 1" in lines[0]


@pytest.mark.parametrize(
    "raw", [b"", b"\n\n", b"# only words\n", b"---\n", b"\xef\xbb\xbf", b"null\n"]
)
def test_file_without_a_value_is_an_empty_mapping(read, raw):
    assert plain(read(raw)) == {}


def test_byte_order_mark_is_no_part_of_the_first_key(read):
    assert plain(read(b"\xef\xbb\xbfa: 1\n")) == {"a": 1}


BOMBS = {
    "sequences": "a0: &a0 [x]\n"
    + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40)),
    "mappings": "a0: &a0 {x: 1}\n"
    + "".join(
        f"a{n}: &a{n} {{l: *a{n - 1}, m: *a{n - 1}, r: *a{n - 1}}}\n"
        for n in range(1, 60)
    ),
    "merges": "a0: &a0 {x: 1}\n"
    + "".join(
        f"a{n}: &a{n} {{l: *a{n - 1}, r: *a{n - 1}, <<: [*a{n - 1}, *a{n - 1}]}}\n"
        for n in range(1, 60)
    ),
    "depth": "a: " + "[" * 20_000,
    "closed depth": "a: " + "[" * 20_000 + "]" * 20_000,
    "middle depth": "a: " + "[" * 300 + "]" * 300,
    "chain": "a0: &a0 [x]\n"
    + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 2000)),
    "length": "a: [" + "x, " * 20_000 + "]",
    "blocks": "".join(" " * n + "a:\n" for n in range(600)),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", BOMBS)
def test_small_file_that_would_fill_the_memory_is_refused(read, name):
    lines = refusal(read, BOMBS[name])

    assert len(lines) == 1
    assert "nesting or aliases exceed the limit" in lines[0]


def test_nesting_up_to_the_bound_is_understood(read):
    assert plain(read("a: " + "[" * 48 + "]" * 48)) is not None
    assert "nesting or aliases exceed" in refusal(read, "a: " + "[" * 50 + "]" * 50)[0]


def test_large_file_is_refused_unread(read):
    lines = refusal(read, b"# " + b"x" * FILE_BYTES_MAX)

    assert lines == ["a.yaml:1:1: the file is larger than 256KiB, the limit"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("true", True),
        ("no", "no"),
        ("", None),
        ("~", None),
        ("a: b #c", "a: b #c"),
        ("/data/x: y", "/data/x: y"),
        ("@x", "@x"),
        ('"8"', "8"),
        ("'no'", "no"),
        ("[a, 2]", ["a", 2]),
        ("{a: [1]}", {"a": [1]}),
        ("0700", "0700"),
    ],
)
def test_value_from_outside_a_file_is_text_unless_it_is_clearly_not(text, value):
    node = read_value(text, HERE)

    assert plain(node) == value
    assert node.where == HERE


def test_broken_list_from_outside_a_file_is_refused():
    with pytest.raises(Refused, match="--set x: not valid YAML"):
        read_value("[a, b", HERE)


def test_empty_text_has_no_tree():
    assert read_text("# nothing\n", lambda _: HERE) is None
