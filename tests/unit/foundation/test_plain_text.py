"""Text from outside stays text: names are refused, and every format escapes what it is given."""

import csv
import io
import json

import pytest

from foundation.errors import UserError
from foundation.plain_text import check_name, csv_text, json_text, markdown_text, visible
from foundation.registry import Registry

HOSTILE = [
    "a\rb",
    "a\nb",
    "a\tb",
    "\u202eevil",
    "a\u2028b",
    "\ud800",
    "\x1b[2Jx",
    "a\x00",
    "\ufeffa",
]
FORMULAS = ["=1+1", "+1", "-1", "@a"]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_prints_in_one_line_of_visible_signs(text):
    for shown in (visible(text), markdown_text(text), csv_text(text)):
        assert shown.isprintable()
        assert shown.encode("utf-8")
    assert visible("plain-näme ≈ 1.3× [1.1, 1.5] <.001") == "plain-näme ≈ 1.3× [1.1, 1.5] <.001"


@pytest.mark.parametrize("name", [*HOSTILE, "", " ", "x" * 81])
def test_such_a_text_is_no_name(name):
    with pytest.raises(ValueError, match="give a name of one line, 1 to 80 printable"):
        check_name(name)
    with pytest.raises(UserError, match=r"^method .*: give a name of one line"):
        Registry("method", "none").add(name, object())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[l](javascript:x)", r"[l]\(javascript:x)"),
        ("<script>", r"\<script>"),
        ("a|b", r"a\|b"),
        ("`a`*b*", r"\`a\`\*b\*"),
        ("1.31 [1.13, 1.53] <.001", "1.31 [1.13, 1.53] <.001"),
    ],
)
def test_markdown_renders_no_link_tag_or_column(text, shown):
    assert markdown_text(text) == shown


@pytest.mark.parametrize("text", [*HOSTILE, *FORMULAS, 'a"b', "a,b"])
def test_a_csv_cell_reads_back_as_one_and_is_no_formula(text):
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerow([csv_text(text), 1])
    (cells,) = csv.reader(io.StringIO(file.getvalue()))

    assert cells == [csv_text(text), "1"]
    assert not cells[0].startswith(tuple("=+-@\t\r"))


def test_json_keeps_its_values_and_shows_no_unseen_sign():
    values = {"name": [*HOSTILE, "näme", "\U000e0001", "two\nlines"]}
    document = json_text(json.dumps(values, ensure_ascii=False, indent=1))

    assert json.loads(document) == values
    assert document.replace("\n", "").isprintable()
    assert "näme" in document
