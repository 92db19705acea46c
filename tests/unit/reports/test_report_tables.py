import csv
import io
import json
from typing import get_args

import pytest

from foundation.errors import UserError
from harness.records.verdicts import COUNTED, VERDICTS, Verdict
from methods.core.generation import Round
from reports.latex import latex_text
from reports.table_blocks import COLUMNS, WIDE_COLUMNS
from reports.tables import FORMATS, render_report


@pytest.fixture
def rows(row):
    return [
        row(method, q, decode_s * (1 + q / 50), task=task, verdict=verdict)
        for task in ("code", "mini")
        for q in range(1, 9)
        for method, decode_s, verdict in (
            ("autoregressive", 1.0, "reference"),
            ("tree", 0.5, "tie" if q == 1 else "identical"),
        )
    ]


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_holds_every_line_and_is_strict(run_folder, rows, failed):
    rows.append(failed("broken", 1, task="code"))
    report = strict(render_report(run_folder(rows), "json"))
    assert report["schema_version"] == 1
    assert report["clocks"] == {"wall": "measured"}
    assert [(line["task"], line["method"]) for line in report["lines"]] == [
        ("code", "autoregressive"),
        ("code", "broken"),
        ("code", "tree"),
        ("mini", "autoregressive"),
        ("mini", "tree"),
        ("overall", "autoregressive"),
        ("overall", "broken"),
        ("overall", "tree"),
    ]
    assert report["lines"][1]["speedup"] is None
    assert report["lines"][2]["speedup"] == pytest.approx(2.0)


def test_csv_and_json_hold_the_same_numbers(run_folder, rows):
    run = run_folder(rows)
    flat = list(csv.DictReader(io.StringIO(render_report(run, "csv"))))
    lines = strict(render_report(run, "json"))["lines"]
    assert len(flat) == len(lines)
    for cells, line in zip(flat, lines, strict=True):
        factors = line.pop("factors")
        assert (factors is None) == (line["method"] == "autoregressive" or "overall" not in line["task"])
        assert list(cells) == list(line)
        texts = {
            key: "; ".join(value) if key == "notes" else "" if value is None else str(value)
            for key, value in line.items()
        }
        assert cells == texts


def test_the_terminal_table_shows_the_headline_and_fits_the_screen(run_folder, rows, row):
    long_name = "a_method_with_a_name_that_is_rather_long"
    rows += [row(long_name, q, 0.001 + q / 20, task="mini", verdict="numeric") for q in range(1, 9)]
    text = render_report(run_folder(rows), "table")
    assert "code · pair toy · measured" in text
    assert "2.00 [2.00, 2.00]" in text
    assert "7= 1~" in text
    assert ".008 (" in text  # 2 of 256 sign patterns, raw, then Holm in brackets
    assert "Where decode time went: overall" in text
    assert max(map(len, text.split("\n"))) <= 120


def test_prompts_that_were_left_out_stand_beside_those_compared(run_folder, rows, failed):
    rows = [row for row in rows if (row.task, row.question_id, row.method) != ("code", 3, "tree")]
    text = render_report(run_folder([*rows, failed("tree", 3, task="code")]), "table")
    cells = next(line.split() for line in text.split("\n") if line.startswith("tree"))
    assert cells[-1] == "7/8"


def test_the_legend_of_the_columns_is_in_json_too(run_folder, rows):
    legend = strict(render_report(run_folder(rows), "json"))["legend"]
    unexplained = [
        column.header
        for column in (*COLUMNS, *WIDE_COLUMNS)
        if column.header != "method" and not any(f" {column.header.split()[0]}: " in f" {text}" for text in legend)
    ]
    assert unexplained == []


def test_every_verdict_is_counted_in_every_format_and_stands_in_the_legend(run_folder, row):
    counted = [name for name in get_args(Verdict) if name != "reference"]
    rows = [row("autoregressive", q) for q in range(len(counted))]
    rows += [row("tree", q, verdict=name) for q, name in enumerate(counted)]
    run = run_folder(rows)
    table = render_report(run, "table")
    (line,) = [line for line in strict(render_report(run, "json"))["lines"] if line["method"] == "tree"]
    (cells,) = [one for one in csv.DictReader(io.StringIO(render_report(run, "csv"))) if one["method"] == "tree"]

    assert " ".join(f"1{VERDICTS[name].sign}" for name in counted) in table
    assert {name: line.get(name) for name in counted} == dict.fromkeys(counted, 1)
    assert {name: cells.get(name) for name in counted} == dict.fromkeys(counted, "1")
    assert [name for name in counted if f"{VERDICTS[name].sign} {name}" not in table] == []


def test_the_columns_of_csv_keep_their_names_and_order(run_folder, rows):
    header = render_report(run_folder(rows), "csv").split("\n")[0]

    assert header == (
        "clock,timing,pair,task,method,engine,baseline,n,dropped,missing,speedup,ci_low,ci_high,total_ratio,e2e_ratio,"
        "accepted_per_round,tokens_per_round,tokens_per_round_by_prompt,tokens_per_s,calls_per_round,tokens_per_call,"
        "call_rates,by_middle_pct,p,p_holm,p_bh,rank_biserial,small_pct,middle_pct,scheduler_pct,verify_pct,other_pct,"
        f"{','.join(COUNTED)},failed,marked,unrated,repetition,n_without_repetition,speedup_without_repetition,notes"
    )


def test_latex_has_booktabs_tables_that_show_their_text_as_it_is(run_folder, rows, row):
    rows += [row("50%_a&b#{x}~\\", q, 0.4, task="mini") for q in range(1, 9)]
    text = render_report(run_folder(rows), "latex")
    code = [line for line in text.split("\n") if not line.startswith("%")]
    assert [code.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [6, 6, 6]
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 6
    assert r"50\%\_a\&b\#\{x\}$\sim$\textbackslash{}" in text
    rows_of_cells = [line for line in code if line.endswith(r"\\")]
    columns = {line.replace(r"\&", "").count("&") for line in rows_of_cells}
    assert columns == {13, 8, 5, 4}  # tasks, where the time went, what made the speedup, method against method
    assert all(ord(sign) < 128 for line in code for sign in line)
    assert "+1.00" in text  # every prompt gains


def test_a_cell_in_brackets_is_no_argument_of_the_line_before_it():
    assert latex_text("[x]") == "{[}x]"


def test_ranks_across_tasks_are_described_and_their_low_power_is_said(run_folder, row):
    rows = [
        row(method, q, decode_s, task=task)
        for task in "abcdef"
        for q in (1, 2)
        for method, decode_s in (("autoregressive", 1.0), ("u", 0.9), ("v", 0.8), ("w", 0.7), ("x", 0.6))
    ]
    (ranking,) = strict(render_report(run_folder(rows), "json"))["rankings"]
    assert ranking["mean_ranks"] == {"x": 1.0, "w": 2.0, "v": 3.0, "u": 4.0, "autoregressive": 5.0}
    assert ["x", "autoregressive"] in ranking["apart"]
    assert ["x", "w"] not in ranking["apart"]
    assert ranking["note"] == (
        "description only: over 6 tasks a paired test has no p below 0.031, and Holm over 10 pairs asks for 0.005"
    )
    assert "Description only: over 6 tasks" in " ".join(render_report(run_folder(rows), "table").split())


def test_questions_of_the_manifest_without_a_row_are_told(run_folder, rows):
    manifest = {"tasks": {"code": {"n": 8}, "mini": {"n": 10}, "nq": {"n": 5}}}
    lines = strict(render_report(run_folder(rows, manifest), "json"))["lines"]
    missing = {line["task"]: line["missing"] for line in lines if line["method"] == "tree"}
    assert missing == {"code": 0, "mini": 2, "overall": 7}
    assert "without a row, the run unfinished or its file cut: 7" in render_report(run_folder(rows, manifest), "table")


def test_markdown_is_github_tables(run_folder, rows):
    text = render_report(run_folder(rows), "markdown")
    assert "### overall · pair toy · measured" in text
    header = next(line for line in text.split("\n") if "speedup [95% CI]" in line)
    assert header.startswith("| method")
    assert header.count("|") == 13


@pytest.mark.parametrize("format", FORMATS)
def test_modelled_times_are_labelled_in_every_format(run_folder, row, format):
    rows = [row(method, clock="profile:h200") for method in ("autoregressive", "tree")]
    text = render_report(run_folder(rows, {"config": {"clock": "wall"}}), format)
    assert "modelled (profile:h200)" in text
    assert "measured" not in text


def test_measured_rows_beside_a_manifest_of_modelled_ones_are_an_error(run_folder, rows):
    with pytest.raises(UserError, match="but the manifest is of clock profile:h200"):
        render_report(run_folder(rows, {"config": {"clock": "profile:h200"}}), "table")


def test_a_method_may_be_called_anything_and_the_markdown_table_keeps_its_columns(run_folder, row):
    rows = [row(method, q) for method in ("autoregressive", "a|b\nc") for q in (1, 2)]
    text = render_report(run_folder(rows), "markdown")
    line = next(line for line in text.split("\n") if line.startswith("| a\\"))
    assert line.startswith(r"| a\|b c ")
    assert line.replace(r"\|", "").count("|") == 13


@pytest.mark.parametrize("format", FORMATS)
def test_embedded_questions_are_labelled_in_every_format(run_folder, rows, format):
    manifest = {"tasks": {"mini": {"source": "embedded", "origin": "own", "sha256": "ab" * 32, "n": 8}}}
    text = render_report(run_folder(rows, manifest), format)
    assert "mini (embedded)" in text
    assert "overall (partly embedded)" in text


def test_a_header_tells_where_the_questions_come_from(run_folder, rows):
    manifest = {"tasks": {"code": {"source": "local", "origin": "code/question.jsonl", "sha256": "cd" * 32, "n": 8}}}
    text = render_report(run_folder(rows, manifest), "table")
    assert text.startswith("code: local code/question.jsonl, 8 questions, sha256 cdcdcdcdcdcd\n")


@pytest.mark.parametrize(
    "methods", [["tree", "autoregressive", "chain"], [{"name": "tree"}, {"name": "chain"}], {"tree": {}, "chain": {}}]
)
def test_the_order_of_methods_comes_from_the_configuration(run_folder, row, methods):
    rows = [row(method) for method in ("autoregressive", "chain", "tree")]
    report = strict(render_report(run_folder(rows, {"config": {"methods": methods}}), "json"))
    assert [line["method"] for line in report["lines"]] == ["autoregressive", "tree", "chain"]


@pytest.mark.parametrize(
    "manifest", [{}, [], {"tasks": None, "config": 3}, {"tasks": {"mini": None}, "config": {"methods": 1}}]
)
def test_a_manifest_without_the_known_keys_is_passed_over(run_folder, rows, manifest):
    assert "mini · pair toy" in render_report(run_folder(rows, manifest), "table")


@pytest.mark.parametrize("text", ['{"tasks": ', "[" * 100_000, '{"tasks": {"mini": {"origin": "\\ud800"}}}'])
def test_a_manifest_that_is_not_json_is_an_error_that_names_it(run_folder, rows, text):
    run = run_folder(rows)
    (run / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=r"manifest\.json: not readable"):
        render_report(run, "table")


def test_a_torn_last_line_changes_nothing(run_folder, rows, row):
    whole = render_report(run_folder(rows), "csv")
    torn = row("tree", 99, task="code").model_dump_json()
    assert all(render_report(run_folder(rows, tail=torn[:cut]), "csv") == whole for cut in (1, 50, len(torn) - 1))


def test_only_the_last_attempt_of_a_row_counts(run_folder, row, failed):
    first = [row("autoregressive"), failed("tree")]
    again = [row("autoregressive", decode_s=2.0, attempt=2), row("tree", decode_s=0.5, attempt=2)]
    (_, tree) = strict(render_report(run_folder(first + again), "json"))["lines"]
    assert (tree["speedup"], tree["failed"]) == (pytest.approx(4.0), 0)


def test_line_separators_inside_a_string_do_not_split_a_row(run_folder, row):
    rows = [row("autoregressive"), row("tree", marks=["a\u2028b\u0085c"])]
    assert strict(render_report(run_folder(rows), "json"))["lines"][1]["marked"] == 1


def test_the_file_of_rows_may_be_named_instead_of_its_folder(run_folder, rows):
    run = run_folder(rows, {"tasks": {"mini": {"source": "embedded"}}})
    assert render_report(run / "rows.jsonl", "csv") == render_report(run, "csv")


def test_notes_name_the_methods_they_hold_for(run_folder, row):
    rows = [row(method, q) for method in ("autoregressive", "chain", "tree") for q in (1, 2, 3)]
    assert "Note: fewer than 6 prompts: no p-value (chain, tree)" in render_report(run_folder(rows), "table")


def test_a_missing_folder_is_an_error_with_a_fix(tmp_path):
    with pytest.raises(UserError, match="give the folder of a run"):
        render_report(tmp_path / "nowhere", "table")


def test_a_folder_without_rows_is_an_error(run_folder, failed):
    with pytest.raises(UserError, match="no rows yet"):
        render_report(run_folder([]), "table")


def test_a_run_without_an_answer_is_an_error_that_names_the_folder(run_folder, failed):
    run = run_folder([failed("autoregressive")])
    with pytest.raises(UserError, match=str(run)):
        render_report(run, "table")


def test_an_unknown_format_is_an_error_that_lists_the_known_ones(run_folder, rows):
    with pytest.raises(UserError, match="table, markdown, latex, csv, json"):
        render_report(run_folder(rows), "xml")


def test_reports_say_when_the_middle_drafter_was_called_and_who_supplied_what_was_accepted(row, run_folder):
    drafted = [Round([1, 0, 1], 4, 3, [], 1), Round([0, 0], 4, 1, [], 0)]  # the second round ended after two steps
    rows = [
        one
        for number in range(8)
        for one in (
            row("autoregressive", number, committed=6),
            row("grafted", number, committed=6, accepted=[], rounds=drafted),
            row("all-small", number, committed=6, accepted=[5]),
        )
    ]
    run = run_folder(rows)
    (line,) = [
        line
        for line in json.loads(render_report(run, "json"))["lines"]
        if line["method"] == "grafted" and line["call_rates"]
    ]
    assert line["call_rates"] == [0.5, 0.0, 0.5]
    assert line["by_middle_pct"] == 25.0
    table = render_report(run, "table")
    (shown, *_) = [text for text in table.split("Who drafted")[1].split("\n") if text.startswith("grafted")]
    assert shown.split() == ["grafted", "0.50", "0.00", "0.50", "75.0", "25.0"]
    assert "0.5000 0.0000 0.5000" in render_report(run, "csv")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "profile gpu/big (roofline; a GPU): latencies of pair big, with the acceptance of pair toy"),
        ({"pair": "toy"}, "profile gpu/big (roofline; a GPU): latencies of pair toy"),
        ({"weights": "random"}, "profile gpu/big (roofline with random weights; a GPU): latencies of pair big"),
        ({"weights": "own"}, "profile gpu/big (roofline; a GPU): latencies of pair big"),
        (
            {"pair": "toy", "unknown": ["verify_ms", "prefill"]},
            "pair toy; unknown, so charged nothing: verify_ms, prefill",
        ),
    ],
)
def test_a_report_says_whose_latencies_a_profile_has_and_what_it_does_not_know(row, run_folder, changes, text):
    profile = {"name": "gpu/big", "kind": "roofline", "device": "a GPU", "pair": "big", "unknown": [], **changes}
    rows = [row(method, clock="profile:gpu/big") for method in ("autoregressive", "tree")]
    folder = run_folder(rows, {"pair": {"name": "toy"}, "profile": profile})

    assert text in render_report(folder, "table").split("\n")[0] + "\n"
    assert "modelled (profile:gpu/big)" in render_report(folder, "table")
