"""The line that sets the baseline beside a production engine."""

import json

import pytest

from reports.tables import FORMATS, render_report

SECONDS = {"autoregressive": 4.0, "llamacpp": 2.25, "llamacpp-ngram": 1.0}
LINE = (
    "Tokens a second of a production engine on the same weights (toy, mini): llamacpp 4.0; "
    "the baseline reaches 62% of it."
)


@pytest.fixture
def rows(row):
    """Ten tokens an answer; of those that llama.cpp gives, the first of them counts as prefill."""
    their = {"engine": "llama.cpp", "baseline": "llamacpp", "peer": True, "verdict": "unverified"}
    return [
        row(name, question, seconds, **({**their, "telemetry": {"equal_tokens": 3}} if "llama" in name else {}))
        for question in range(1, 4)
        for name, seconds in SECONDS.items()
    ]


def test_the_baseline_stands_beside_a_production_engines_plain_decoding(rows, run_folder):
    (line,) = json.loads(render_report(run_folder(rows), "json"))["production"]

    assert (line["method"], line["engine"], line["task"]) == ("llamacpp", "llama.cpp", "mini")
    assert line["tokens_per_s"] == pytest.approx(9 / 2.25)
    assert line["baseline_pct"] == pytest.approx(100 * (10 / 4.0) / (9 / 2.25))
    assert line["equal_pct"] == pytest.approx(30.0)


@pytest.mark.parametrize("format", sorted({*FORMATS} - {"csv", "json"}))
def test_every_text_says_so_under_its_tables(rows, run_folder, format):
    text = " ".join(render_report(run_folder(rows), format).replace("\\%", "%").split())

    assert f"{LINE} 30% of its tokens come before the first that is not the baseline's." in text


def test_rows_that_do_not_tell_of_equal_tokens_get_no_share(rows, run_folder):
    silent = [one.model_copy(update={"telemetry": {}}) for one in rows]

    text = " ".join(render_report(run_folder(silent), "table").split())

    assert LINE in text
    assert "of its tokens come" not in text


def test_a_run_without_one_has_no_such_line(rows, run_folder):
    without = [one for one in rows if one.engine != "llama.cpp"]

    assert json.loads(render_report(run_folder(without), "json"))["production"] == []
    assert "production engine" not in render_report(run_folder(without), "table")
