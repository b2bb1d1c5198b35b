"""The progress line of a scan: names done, current rate, and the rest."""

from hypothesis import given
from hypothesis import strategies as st

from monarch.origins.progress import (
    LINE_CHARACTERS,
    Advance,
    ScanRate,
    scan_line,
)


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Returns the time."""
        return self.now_s


def lines(*steps: tuple[float, Advance]) -> list[str]:
    """The line at each time."""
    clock = Clock()
    rate = ScanRate(clock)
    said = []
    for clock.now_s, advance in steps:
        said.append(rate.describe(advance))
    return said


def test_a_first_scan_shows_names_and_rate() -> None:
    assert lines((2.0, Advance(12_000))) == ["12,000 names, 6,000/s"]


def test_a_scan_with_a_known_predecessor_shows_the_rest() -> None:
    said = lines((2.0, Advance(12_000, 30_000)))

    assert said == ["12,000 of ~30,000 names, 6,000/s, ~3.0 s left"]


def test_a_dataset_that_has_grown_has_no_rest() -> None:
    assert lines((1.0, Advance(31_000, 30_000))) == ["31,000 names, 31,000/s"]


def test_the_comparison_of_a_saved_index_counts_directories() -> None:
    said = lines((1.0, Advance(250, 1000, compares=True)), (2.0, Advance(600)))

    assert said[0] == "250 of 1,000 dirs, 250/s, 3.0 s left"
    assert said[1] == "600 names, 600/s"


def test_the_rate_is_that_of_the_last_seconds() -> None:
    """An origin that becomes slow is not praised for what it was."""
    steps = [(float(second), Advance(1000 * second, 100_000)) for second in range(1, 9)]
    slow = [(8.0 + n, Advance(8000 + 10 * n, 100_000)) for n in range(1, 11)]
    hung = [(18.0 + n, Advance(8100, 100_000)) for n in range(1, 8)]

    said = lines(*steps, *slow, *hung)

    assert said[7].endswith("1,000/s, ~1 min 32 s left")
    assert "names, 10/s" in said[17]
    assert said[-1] == "8,100 of ~100,000 names, 0/s"


def test_millions_of_names_take_few_characters() -> None:
    said = lines((10.0, Advance(1_234_567, 20_000_000)))

    assert said == ["1.23M of ~20.00M names, 123,457/s, ~2 min 32 s left"]


@given(
    path=st.text("/abc", min_size=1, max_size=200).map(lambda text: f"/{text}"),
    done=st.integers(0, 20_000_000),
    left=st.integers(0, 20_000_000),
    seconds=st.floats(20.0, 100_000.0),
    compares=st.booleans(),
)
def test_the_line_fits_on_a_terminal(path, done, left, seconds, compares) -> None:
    state = lines((seconds, Advance(done, done + left, compares)))[0]

    line = scan_line(path, state)

    assert len(line) <= LINE_CHARACTERS
    assert line.endswith(f": {state}")
    shown = line.removeprefix("scanning ").removesuffix(f": {state}")
    assert shown == path or path.endswith(shown.removeprefix("..."))


def test_a_path_that_fits_is_shown_whole() -> None:
    assert scan_line("/pfs/a", "5 names, 5/s") == "scanning /pfs/a: 5 names, 5/s"


def test_the_link_with_most_names_behind_it_is_named() -> None:
    said = lines((2.0, Advance(12_000, behind="train")))

    assert said == ["12,000 names, most behind train, 6,000/s"]
