"""Tests of monarch.units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.units import (
    DURATION_MAX_S,
    SIZE_MAX,
    Size,
    SizeKind,
    UnitError,
    exact_duration,
    exact_size,
    format_count,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("0B", 0),
        ("1B", 1),
        ("8GiB", 8 << 30),
        ("80GB", 80 * 10**9),
        ("1.5TiB", 3 << 39),
        ("64 KiB", 64 << 10),
        (" 2kB ", 2000),
        ("2KB", 2000),
        ("0.1B", 0),
        ("8191PiB", 8191 << 50),
    ],
)
def test_size_is_read_with_its_unit(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("8", "8GiB"),
        ("1048576", "1048576B"),
        ("8G", "8GiB"),
        ("8gib", "8GiB"),
        ("80gb", "80GB"),
        ("8m", "8MiB"),
        ("8 parsec", ""),
        ("-8GiB", ""),
        ("GiB", ""),
        ("", ""),
        ("8GiB8", ""),
        ("1e3B", ""),
        ("8,5GiB", ""),
        ("٨GiB", ""),
        ("infB", ""),
    ],
)
def test_invalid_size_is_refused_with_a_suggestion(text, nearest):
    with pytest.raises(UnitError) as refused:
        parse_size(text)

    assert refused.value.nearest == nearest
    assert "use a size such as 8GiB" in str(refused.value)


def test_size_beyond_what_a_file_can_have_is_refused():
    assert parse_size(f"{SIZE_MAX}B") == SIZE_MAX
    for text in (f"{SIZE_MAX + 1}B", "8192PiB", "9" * 5000 + "PiB"):
        with pytest.raises(UnitError):
            parse_size(text)


@given(st.integers(0, SIZE_MAX))
def test_exact_size_reads_as_the_same_size(size):
    assert parse_size(exact_size(size)) == size


@given(st.integers(1, 1000), st.sampled_from(["KiB", "MiB", "GiB", "TiB", "GB"]))
def test_exact_size_is_no_longer_than_what_was_written(number, unit):
    text = f"{number}{unit}"

    assert len(exact_size(parse_size(text))) <= len(text)


@pytest.mark.parametrize(
    ("text", "size", "of_1000"),
    [
        ("40%", Size(SizeKind.PERCENT, 40), 400),
        ("12.5%", Size(SizeKind.PERCENT, 12.5), 125),
        ("100 %", Size(SizeKind.PERCENT, 100), 1000),
        ("all-but 1kB", Size(SizeKind.ALL_BUT, 1000), 0),
        ("all-but  10 B", Size(SizeKind.ALL_BUT, 10), 990),
        ("all-but 2kB", Size(SizeKind.ALL_BUT, 2000), 0),
        ("unlimited", Size(SizeKind.UNLIMITED), 1000),
        ("300B", Size(SizeKind.BYTES, 300), 300),
    ],
)
def test_relative_size_is_a_number_of_bytes_of_a_total(text, size, of_1000):
    assert Size.parse(text) == size
    assert Size.parse(text).of(1000) == of_1000


def test_automatic_size_has_no_value_of_its_own():
    assert Size.parse("auto") == Size(SizeKind.AUTO)
    with pytest.raises(ValueError, match="automatic"):
        Size.parse("auto").of(1000)


@pytest.mark.parametrize(
    "text", ["0%", "101%", "%", "4x%", "all-but", "all-but 40%", "Auto", "all 8GiB"]
)
def test_invalid_relative_size_is_refused(text):
    with pytest.raises(UnitError):
        Size.parse(text)


sizes = st.one_of(
    st.sampled_from([Size(SizeKind.AUTO), Size(SizeKind.UNLIMITED)]),
    st.builds(Size, st.just(SizeKind.BYTES), st.integers(0, SIZE_MAX)),
    st.builds(Size, st.just(SizeKind.ALL_BUT), st.integers(0, SIZE_MAX)),
    st.builds(
        Size,
        st.just(SizeKind.PERCENT),
        st.floats(0, 100, exclude_min=True, allow_subnormal=False),
    ),
)


@given(sizes)
def test_size_as_text_reads_as_the_same_size(size):
    assert Size.parse(str(size)) == size


@given(st.floats(0.001, 100), st.integers(0, 1 << 60))
def test_share_of_a_total_stays_within_it(percent, total):
    assert 0 <= Size(SizeKind.PERCENT, percent).of(total) <= total


def test_rate_is_a_size_per_second():
    assert parse_rate("200MB/s") == 200_000_000
    assert parse_rate("1 GiB / s") == 1 << 30
    for text in ("200MB", "200MB/min", "fast", "/s", "200MB/s/s"):
        with pytest.raises(UnitError, match="200MB/s"):
            parse_rate(text)
    with pytest.raises(UnitError, match="did you mean '2GiB/s'"):
        parse_rate("2G/s")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("30s", 30),
        ("500ms", 0.5),
        ("0.1s", 0.1),
        ("10min", 600),
        ("2h", 7200),
        ("7d", 604800),
        ("1.5 h", 5400),
    ],
)
def test_duration_is_read_with_its_unit(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("30", "30s"),
        ("10m", "10min"),
        ("2 hours", "2h"),
        ("3Days", "3d"),
        ("-3s", ""),
        ("1h30min", ""),
        ("soon", ""),
        ("", ""),
        ("1 fortnight", ""),
    ],
)
def test_invalid_duration_is_refused_with_a_suggestion(text, nearest):
    with pytest.raises(UnitError) as refused:
        parse_duration(text)

    assert refused.value.nearest == nearest


def test_duration_has_an_upper_bound():
    assert parse_duration("3650d") == DURATION_MAX_S
    with pytest.raises(UnitError, match="at most 3650d"):
        parse_duration("3651d")


@given(
    st.one_of(
        st.floats(0, DURATION_MAX_S, allow_subnormal=False),
        st.integers(0, int(DURATION_MAX_S)).map(float),
        st.integers(0, 10_000).map(lambda ms: ms / 1000),
    )
)
def test_exact_duration_reads_as_the_same_duration(seconds):
    assert parse_duration(exact_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "500ms"), (30, "30s"), (600, "10min"), (7200, "2h"), (604800, "7d")],
)
def test_exact_duration_is_what_people_write(seconds, text):
    assert exact_duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (64 << 30, "64.0 GiB"),
        (5 << 60, "5120.0 PiB"),
    ],
)
def test_size_for_people_has_one_decimal(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.000085, "85 µs"),
        (0.0009996, "1 ms"),
        (0.35, "350 ms"),
        (0.99951, "1.0 s"),
        (12.34, "12.3 s"),
        (59.96, "1 min 00 s"),
        (245, "4 min 05 s"),
        (3725, "1 h 02 min"),
        (86400 * 2 + 3600 * 5, "2 d 05 h"),
    ],
)
def test_duration_for_people_has_the_unit_that_fits(seconds, text):
    assert format_duration(seconds) == text


def test_counts_and_rates_for_people():
    assert format_count(1204) == "1,204"
    assert format_rate(1288490188.8) == "1.2 GiB/s"
