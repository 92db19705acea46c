"""A study's findings as text: a table a condition, each naming the pairs of its acceptance and latencies."""

from __future__ import annotations

import json
from dataclasses import asdict

from tabulate import tabulate

from foundation.plain_text import markdown_text, visible
from harness.training.bootstrap import Gain
from harness.training.study.evaluation import PolicyResult
from harness.training.study.run_study import ConditionResult, Findings

WORDS = (
    "speedup: time of autoregressive decoding over the policy's, each summed over all answers; a token of the former "
    "takes a target forward of one token and what stands beside every round, under the same clock.",
    "over the better endpoint: how much faster than never or always calling, whichever takes less time in all; over "
    "refit: than the scheduler fitted under this very condition.",
    "[ ]: 95% interval, paired bootstrap over prompts.",
    "calls a round: of the middle drafter, along the policy's own path; learned schedulers keep to B0.",
)


def render_findings(findings: Findings, kind: str) -> str:
    """Return findings as `table`, `markdown` or `json`."""
    if kind == "json":
        return json.dumps(asdict(findings), indent=1)
    return "\n\n".join(
        [
            findings.about,
            _facts(findings),
            *(_section(result, markdown=kind == "markdown") for result in findings.conditions),
            _listed(WORDS, markdown=kind == "markdown"),
        ]
    )


def _facts(findings: Findings) -> str:
    decision = "" if findings.decision_ms is None else f", a learned decision {findings.decision_ms:g} ms at least"
    return (
        f"Modelled{decision}: schedulers fitted to {findings.fit_prompts} prompts, all judged on {findings.prompts} "
        f"others ({', '.join(findings.tasks)}), greedy."
    )


def caption(result: ConditionResult) -> str:
    """Return the caption of a condition: its cost model, latencies and B0."""
    times = f"T_tgt {result.target_ms:.2f} ms, T_mid {result.middle_ms:.2f} ms, B0 {result.most_calls}"
    return f"{result.caption}; {times}."


def _section(result: ConditionResult, *, markdown: bool) -> str:
    transfers = any(line.over_refit for line in result.lines)
    headers = ["policy", "speedup", "over the better endpoint", "calls a round", *(["over refit"] if transfers else [])]
    escaped = markdown_text if markdown else visible
    rows = [[*map(escaped, _row(line, transfers))] for line in result.lines]
    sides = ("left", *["right"] * (len(headers) - 1))
    grid = tabulate(rows, headers, "github" if markdown else "simple", colalign=sides, disable_numparse=True)
    title = f"### {markdown_text(result.condition)}\n" if markdown else f"{visible(result.condition)}:"
    return f"{title}\n{caption(result)}\n\n{grid}"


def _row(line: PolicyResult, transfers: bool) -> list[str]:
    cells = [line.policy, f"{line.speedup:.3f}", _share(line.gain), f"{line.calls:.2f}"]
    return [*cells, _share(line.over_refit)] if transfers else cells


def _share(gain: Gain | None) -> str:
    return "" if gain is None else f"{gain.value:+.1%} [{gain.low:+.1%}, {gain.high:+.1%}]"


def _listed(words: tuple[str, ...], *, markdown: bool) -> str:
    return "\n".join(f"- {line}" if markdown else line for line in words)
