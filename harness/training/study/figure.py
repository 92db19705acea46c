"""A study's figure: speedups along its axis, one line a policy, one panel a clock; the same bytes each time."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from foundation.atomic_write import write_whole
from harness.training.study.run_study import ConditionResult, Findings

_MARKERS = "osD^v<>P*X"
_PANEL = (6.0, 4.6)
"""Inches."""


def draw(findings: Findings, file: Path) -> None:
    """Write the figure of a study with an axis as SVG.

    Raises:
        UserError: the file cannot be written.
    """
    groups = dict.fromkeys(result.group for result in findings.conditions)
    # Reproducible element ids, and text that stays text.
    with matplotlib.rc_context({"svg.hashsalt": "treegraft", "svg.fonttype": "none"}):
        figure = Figure(figsize=(_PANEL[0] * len(groups), _PANEL[1]), layout="constrained")
        panels = figure.subplots(1, len(groups), squeeze=False)[0]
        for panel, group in zip(panels, groups, strict=True):
            _panel(panel, findings, [result for result in findings.conditions if result.group == group])
        write_whole(
            file,
            lambda scratch: figure.savefig(scratch, format="svg", metadata={"Date": None}),
            "give another --figure",
        )


def _panel(panel: Axes, findings: Findings, along: list[ConditionResult]) -> None:
    along = sorted(along, key=_place)
    series: dict[str, dict[int, float]] = {}
    for step, result in enumerate(along):
        for line in result.lines:
            series.setdefault(line.policy, {})[step] = line.speedup
    for marker, (policy, points) in zip(_MARKERS * len(series), series.items(), strict=False):
        panel.plot(list(points), list(points.values()), marker=marker, markersize=4, linewidth=1.2, label=policy)
    panel.axhline(1.0, color="0.6", linewidth=0.8, linestyle=":")
    # Spaced evenly: rankings change where the numbers are small and close together.
    panel.set_xticks(range(len(along)), [f"{_place(result):g}" for result in along])
    panel.set_xlabel(findings.axis or "")
    panel.set_ylabel("speedup over autoregressive, modelled")
    panel.set_title(_title(findings, along), fontsize="small")
    panel.legend(fontsize="x-small")


def _title(findings: Findings, along: list[ConditionResult]) -> str:
    devices = list(dict.fromkeys(result.device for result in along))
    where = devices[0] if len(devices) == 1 else f"{devices[0]} to {devices[-1]}"
    title = f"Modelled: acceptance of pair {findings.acceptance_of},\nlatencies of pair {along[0].pair} on {where}"
    unknown = ", ".join(along[0].unknown)
    return f"{title}\nunknown, charged nothing: {unknown}" if unknown else title


def _place(result: ConditionResult) -> float:
    assert result.place is not None  # a study with an axis has one for every condition
    return result.place
