"""Tests of monarch.errors."""

from monarch.errors import ConfigError, MonarchError, UsageError


def test_exit_codes_are_those_of_the_launcher():
    assert MonarchError("no room").exit_code == 125
    assert UsageError("no such file").exit_code == 2
    assert ConfigError(("a:1:1: x",)).exit_code == 2


def test_configuration_error_reads_as_all_its_lines():
    error = ConfigError(("a:1:1: x", "a:2:1: y"))

    assert str(error) == "a:1:1: x\na:2:1: y"
    assert error.lines == ("a:1:1: x", "a:2:1: y")
    assert isinstance(error, UsageError)
