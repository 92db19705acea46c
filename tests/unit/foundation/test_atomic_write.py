"""Files are written whole or not at all."""

import os
from pathlib import Path

import pytest

from foundation.atomic_write import write_text_whole, write_whole
from foundation.errors import UserError


def test_a_file_takes_its_place_whole_and_nothing_stays_beside_it(tmp_path):
    file = tmp_path / "a.json"
    file.write_text("old")
    write_text_whole(file, "new", "make room")
    assert file.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("name", ["report.new", "report.md", "new", ".new"])
def test_no_other_file_of_the_folder_is_touched(tmp_path, name):
    own = ["report.new", "report", "report.md.new", ".md.new"]
    for other in own:
        (tmp_path / other).write_text(other)
    write_text_whole(tmp_path / name, "new", "make room")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {**{one: one for one in own}, name: "new"}


def test_a_write_that_fails_leaves_the_earlier_file_and_says_what_to_do(tmp_path):
    file = tmp_path / "a.json"
    file.write_text("old")

    def full(scratch):
        scratch.write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match=r"a\.json: cannot be written \(No space left on device\); make room"):
        write_whole(file, full, "make room")
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_device_is_written_to_and_not_replaced():
    write_text_whole(Path(os.devnull), "text", "give another")
    assert not os.path.isfile(os.devnull)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_device_is_an_error_of_one_line():
    with pytest.raises(UserError, match="/dev/full: cannot be written"):
        write_text_whole(Path("/dev/full"), "text" * 10_000, "give another")
