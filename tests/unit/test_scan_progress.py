"""The line of a scan tells what is done, the rate of now, and what is left."""

from monarch.origins.progress import Advance, ScanRate


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Returns the time."""
        return self.now_s


def lines(*steps: tuple[float, Advance]) -> list[str]:
    """What is told at each time."""
    clock = Clock()
    rate = ScanRate(clock)
    said = []
    for clock.now_s, advance in steps:
        said.append(rate.describe(advance))
    return said


def test_a_first_scan_tells_names_and_rate() -> None:
    assert lines((2.0, Advance(12_000))) == ["12,000 names, 6,000/s"]


def test_where_an_earlier_scan_is_known_the_rest_is_told() -> None:
    said = lines((2.0, Advance(12_000, 30_000)))

    assert said == ["12,000 of about 30,000 names, 6,000/s, about 3.0 s left"]


def test_a_dataset_that_has_grown_has_no_rest() -> None:
    assert lines((1.0, Advance(31_000, 30_000))) == ["31,000 names, 31,000/s"]


def test_the_comparison_of_a_saved_index_counts_directories() -> None:
    said = lines((1.0, Advance(250, 1000, compares=True)), (2.0, Advance(600)))

    assert said[0] == "250 of 1,000 directories compared, 250/s, 3.0 s left"
    assert said[1] == "600 names, 600/s"


def test_the_rate_is_that_of_the_last_seconds() -> None:
    """An origin that becomes slow is not praised for what it was."""
    steps = [(float(second), Advance(1000 * second, 100_000)) for second in range(1, 9)]
    slow = [(8.0 + n, Advance(8000 + 10 * n, 100_000)) for n in range(1, 11)]
    hung = [(18.0 + n, Advance(8100, 100_000)) for n in range(1, 8)]

    said = lines(*steps, *slow, *hung)

    assert said[7].endswith("1,000/s, about 1 min 32 s left")
    assert "names, 10/s" in said[17]
    assert said[-1] == "8,100 of about 100,000 names, 0/s"
