"""The gate from the command line, on real runs of the toy pair."""

import json
from pathlib import Path

import pytest

from hardware_profiles.profile import write_profile

pytestmark = pytest.mark.torch

SLOWED = """
import time
from treegraft import TreeMethod

DELAY_S = 0.0

class Slow(TreeMethod):
    def draft(self, context, remaining, watch, forwards):
        with watch.span("other"):
            time.sleep(DELAY_S)
        return super().draft(context, remaining, watch, forwards)
"""


@pytest.fixture
def clock(profile, tmp_path):
    write_profile(profile, tmp_path / "plain.yaml")
    return f"profile:{tmp_path / 'plain.yaml'}"


def test_a_run_against_itself_passes_with_exactly_one_whatever_the_margin(treegraft, finished):
    result = treegraft(
        "compare", finished, finished, "--margin", "0%", "--methods", "prompt-lookup", "--format", "json"
    )
    line = json.loads(result.out)["lines"][0]
    assert (line["ratio"], line["low"], line["high"], line["n"]) == (1.0, 1.0, 1.0, 4)
    assert (result.code, line["reason"]) == (1, "needs about 6 prompts at least")  # four are too few to say so


def test_a_method_that_was_made_slow_is_flagged_and_the_untouched_one_is_not_blamed(run, plugin, treegraft):
    plugin(SLOWED, slowed="Slow")
    flags = ["--tasks", "nq,gsm8k", "--limit", "5", "--methods", "slowed"]
    assert run(*flags, "--out", "base").code == 0
    import testing_plugin

    testing_plugin.DELAY_S = 0.05  # some ten times what a round of the toy takes
    assert run(*flags, "--out", "head").code == 0
    result = treegraft("compare", "base", "head", "--format", "markdown")
    assert result.code == 1
    assert "regression: slower by more than 5%" in result.out
    assert "| slowed" in result.out
    faster = treegraft("compare", "head", "base")
    assert (faster.code, "PASS" in faster.out) == (0, True)


def test_replay_compares_exactly_and_flags_a_cut_of_the_node_budget(run, treegraft, clock):
    flags = ["--tasks", "nq,gsm8k", "--limit", "3", "--max-new-tokens", "24", "--methods", "all-mid"]
    for budget in ("15", "12"):
        assert run(*flags, "--budget", budget, "--out", budget).code == 0
    same = treegraft("compare", "15", "15", "--mode", "replay", "--clock", clock, "--format", "json")
    assert (same.code, json.loads(same.out)["lines"][0]["ratio"]) == (0, 1.0)
    cut = treegraft("compare", "15", "12", "--mode", "replay", "--clock", clock)
    assert cut.code == 1
    assert "modelled (profile:plain)" in cut.out
    assert "budget 15 → 12 (all-mid)" in cut.out
    assert "Times: Modelled: acceptance of pair toy, latencies of pair toy in " in cut.out
    again = treegraft("compare", "15", "12", "--mode", "replay", "--clock", clock)
    assert again.out == cut.out


def test_schedules_that_hang_on_the_machine_s_times_are_not_timed_as_another_s(run, treegraft, clock):
    flags = ["--tasks", "nq", "--limit", "2", "--max-new-tokens", "16", "--methods", "all-mid,always-early"]
    for out, told in (("one", "40,10"), ("other", "40,30")):
        assert run(*flags, "--latency", told, "--out", out).code == 0
    compared = treegraft("compare", "one", "other", "--mode", "replay", "--clock", clock)
    assert "method always-early: decides by its machine's times; replay both runs first" in compared.out
    assert "T_tgt, T_mid of schedulers: 40, 10 ms → 40, 30 ms" in compared.out
    for out in ("one", "other"):
        assert treegraft("replay", out, "--clock", clock, "--out", f"{out}-again").code == 0
    again = treegraft("compare", "one-again", "other-again", "--mode", "replay", "--format", "json")
    assert again.code == 0, again.out
    assert {line["method"]: line["ratio"] for line in json.loads(again.out)["lines"]} == {
        "all-mid": 1,
        "always-early": 1,
    }


def test_runs_that_are_not_comparable_exit_with_3_and_say_why(run, treegraft, finished):
    run("--tasks", "nq", "--limit", "1", "--max-new-tokens", "9", "--out", "other")
    result = treegraft("compare", finished, "other", "--output", "why.md", "--format", "markdown")
    assert (result.code, result.out) == (3, "")
    assert "max_new_tokens differs: 12 in BASE, 9 in HEAD" in Path("why.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--margin", "5"], "write for example 5%"),
        (["--methods", "all-smal"], "did you mean all-small?"),
        (["--mode", "replay"], "replay the run first, or give --clock profile:NAME"),
        (["--clock", "profile:x"], "add --mode replay"),
        (["--mode", "replay", "--clock", "wall"], "give profile:NAME"),
    ],
)
def test_what_cannot_be_asked_is_one_line_and_2(refused, finished, flags, words):
    assert words in refused("compare", finished, finished, *flags)


def test_a_folder_that_is_no_run_is_one_line_and_2(refused, finished, tmp_path):
    assert "nowhere/manifest.json: cannot be read" in refused("compare", finished, tmp_path / "nowhere")
