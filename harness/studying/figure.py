"""A study's figure: speedups along its axis, one line a policy, one panel a clock; the same bytes each time."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.errors import UserError
from harness.studying.study import Findings, Found

_MARKERS = "osD^v<>P*X"
_PANEL = (6.0, 4.6)
"""Inches."""


def draw(findings: Findings, file: Path) -> None:
    """Write a study's figure as SVG.

    Args:
        findings: of a study with an axis.
        file: where to.

    Raises:
        UserError: the file cannot be written.
    """
    groups = dict.fromkeys(found.group for found in findings.conditions)
    # Element ids that repeat, and text that stays text.
    with matplotlib.rc_context({"svg.hashsalt": "treegraft", "svg.fonttype": "none"}):
        figure = Figure(figsize=(_PANEL[0] * len(groups), _PANEL[1]), layout="constrained")
        panels = figure.subplots(1, len(groups), squeeze=False)[0]
        for panel, group in zip(panels, groups, strict=True):
            _panel(panel, findings, [found for found in findings.conditions if found.group == group])
        try:
            figure.savefig(file, format="svg", metadata={"Date": None})
        except OSError as error:
            raise UserError(f"--figure {file}: cannot be written ({error.strerror}); give another file") from error


def _panel(panel: Axes, findings: Findings, along: list[Found]) -> None:
    along = sorted(along, key=_place)
    series: dict[str, dict[int, float]] = {}
    for step, found in enumerate(along):
        for line in found.lines:
            series.setdefault(line.policy, {})[step] = line.speedup
    for marker, (policy, points) in zip(_MARKERS * len(series), series.items(), strict=False):
        panel.plot(list(points), list(points.values()), marker=marker, markersize=4, linewidth=1.2, label=policy)
    panel.axhline(1.0, color="0.6", linewidth=0.8, linestyle=":")
    # Spaced evenly: rankings change where the numbers are small and close together.
    panel.set_xticks(range(len(along)), [f"{_place(found):g}" for found in along])
    panel.set_xlabel(findings.axis or "")
    panel.set_ylabel("speedup over autoregressive, modelled")
    panel.set_title(_title(findings, along), fontsize="small")
    panel.legend(fontsize="x-small")


def _title(findings: Findings, along: list[Found]) -> str:
    devices = list(dict.fromkeys(found.device for found in along))
    where = devices[0] if len(devices) == 1 else f"{devices[0]} to {devices[-1]}"
    title = f"Modelled: acceptance of pair {findings.acceptance_of},\nlatencies of pair {along[0].pair} on {where}"
    unknown = ", ".join(along[0].unknown)
    return f"{title}\nunknown, charged nothing: {unknown}" if unknown else title


def _place(found: Found) -> float:
    assert found.place is not None  # a study with an axis has one for every condition
    return found.place
