"""Counts, names and long lines as reports print them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from monarch.report.format import (
    WIDTH,
    fitted,
    folded,
    listed,
    many,
    percent,
    short_names,
)


def test_one_is_not_many():
    assert many(1, "files") == "1 file"
    assert many(1, "more processes") == "1 more process"
    assert many(1, "directories") == "1 directory"
    assert many(1204, "nodes") == "1,204 nodes"
    assert many(0, "times") == "0 times"


def test_a_part_is_not_shown_as_a_hundred_percent():
    assert [percent(part) for part in (None, 0.0, 0.9999, 1)] == [
        *("-", "0.0%", "99.9%", "100.0%")
    ]


def test_names_lose_their_domain_only_where_they_stay_apart():
    assert short_names(["a.x.org", "b.x.org"]) == ["a", "b"]
    assert short_names(["a.x.org", "a.y.org"]) == ["a.x.org", "a.y.org"]


def test_a_long_name_keeps_both_ends():
    assert fitted("compute-rack7-0042", 13) == "comput…7-0042"
    assert fitted("node42", 13) == "node42"


def test_names_are_listed_up_to_a_number():
    assert listed(["a"], 3) == "a"
    assert listed(["a", "b"], 3) == "a and b"
    assert listed(["a", "b", "c"], 3) == "a, b and c"
    assert listed(["a", "b", "c", "d"], 3) == "a, b and 2 more"


def test_a_number_stays_with_its_unit():
    line = "  " + "word " * 15 + "31.5 MiB follow"

    assert folded(line) == ["  " + ("word " * 15).rstrip(), "    31.5 MiB follow"]


@settings(deadline=None)
@given(st.lists(st.text("abc-,.5", min_size=1, max_size=30)), st.booleans())
def test_a_folded_line_fits_and_says_the_same(words, indented):
    line = "  " * indented + " ".join(words)

    lines = folded(line)

    assert " ".join(lines).split() == line.split()
    assert all(len(part) <= WIDTH for part in lines)
