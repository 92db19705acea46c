"""Commands that train drafters and schedulers, or evaluate policies on traces."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from foundation.progress import terminal_bar
from harness.config.configuration import from_flags
from harness.distil.settings import DistilSettings
from harness.training.settings import FitSettings, OracleSettings, StudySettings
from treegraft.cli.flags import flags_of, given


@click.command("distill")
@flags_of(DistilSettings)
def distill_command(**flags: Any) -> None:
    """Train a middle drafter for a target on text that the target writes itself.

    The same command goes on where it was stopped: batches of text and the state of training lie in --work.
    """
    from harness.distil.distil import distil

    settings = from_flags(DistilSettings, given(flags))
    card = distil(settings, terminal_bar)
    overall = ", ".join(f"{top} {share:.1%}" for top, share in card.figures["agreement"]["overall"].items())
    click.echo(
        f"{settings.out}: agreement {overall}; use it as  middle: {{distilled: {settings.out}}}  in a pair's file"
    )


@click.command("fit")
@click.argument("run", type=click.Path(path_type=Path))
@flags_of(FitSettings)
def fit_command(run: Path, **flags: Any) -> None:
    """Fit an online scheduler to RUN, a greedy run on questions for fitting (--split fit).

    Every schedule of its rounds is traced without a target forward, values are fitted to what they were worth under the
    clock, and a tiny network is distilled from those. The same command goes on where it was stopped. With --method
    treegraft-calibrated the edge model of that method is fitted instead, by drafting along RUN's answers.
    """
    from harness.training.fit_edges import METHOD, fit_calibrated
    from harness.training.fit_scheduler import fit

    settings = from_flags(FitSettings, given(flags))
    if settings.method == METHOD:
        fit_calibrated(run, settings, terminal_bar, click.echo)
        click.echo(_how_to_use(settings.out, METHOD))
        return
    artifact = fit(run, settings, terminal_bar, click.echo)
    click.echo(f"a call brings {artifact.call_gain:.3f} tokens: call_gain of the latency-normalized heuristic")
    click.echo(_how_to_use(settings.out, "treegraft"))


def _how_to_use(folder: str, method: str) -> str:
    line = f"methods: [{{name: mine, base: {method}, artifact: {folder}}}]"
    return f"{folder}: use it in a configuration as  {line}  or in a pair's defaults"


@click.command("oracle")
@click.argument("run", type=click.Path(path_type=Path))
@flags_of(OracleSettings)
@click.option("--format", "kind", type=click.Choice(["table", "json"]), default="table", show_default=True)
def oracle_command(run: Path, kind: str, **flags: Any) -> None:
    """Say, modelled, what the best schedules would have reached in RUN, and how near a fitted scheduler comes."""
    from harness.training.oracle import oracle, oracle_table

    result = oracle(run, from_flags(OracleSettings, given(flags)), terminal_bar)
    click.echo(json.dumps(asdict(result), indent=1) if kind == "json" else oracle_table(result))


@click.command("study")
@click.argument("config", type=click.Path(path_type=Path))
@flags_of(StudySettings)
@click.option("--format", "kind", type=click.Choice(["table", "markdown", "json"]), default="table", show_default=True)
def study_command(config: Path, kind: str, **flags: Any) -> None:
    """Ask, modelled, how schedulers fitted under one condition do under another, as CONFIG says (harness/studies).

    A condition is a clock with changes to its machine and to how trees are drafted. Both runs are traced without a
    target forward; the same command goes on where it was stopped, and prints the same to the last digit.
    """
    from harness.training.study.run_study import run_study
    from harness.training.study.tables import render_findings

    settings = from_flags(StudySettings, given(flags))
    findings = run_study(config, settings, terminal_bar)
    click.echo(render_findings(findings, kind))
    if settings.figure is not None:
        from harness.training.study.figure import draw

        draw(findings, Path(settings.figure))


COMMANDS = (distill_command, fit_command, oracle_command, study_command)
