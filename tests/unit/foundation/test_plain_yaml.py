"""YAML values: what YAML 1.1 reads as another number than a person wrote is none."""

import pytest

from foundation.errors import UserError
from foundation.plain_yaml import read_yaml, yaml_values


@pytest.mark.parametrize(
    ("text", "value"),
    [("1:30", "1:30"), ("190:20:30.15", "190:20:30.15"), ("0x1f", 31), ("-3", -3), ("1_000", 1000), ("1e3", 1000.0)],
)
def test_minutes_are_no_number(text, value):
    assert read_yaml(text) == value


@pytest.mark.parametrize("number", ["9" * 20, "0x" + "f" * 4000, "9" * 5000, "-" + "9" * 20])
def test_a_number_beyond_64_bits_is_refused(number):
    with pytest.raises(UserError, match=r"mine\.yaml: not YAML"):
        yaml_values(f"a: {number}", "mine.yaml")
