"""Commands that make something for runs to use (drafters, hardware profiles, schedulers) or reckon on traces."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from harness.config import from_flags
from harness.distil.settings import DistilSettings
from harness.fitting.settings import FitSettings, OracleSettings
from harness.flags import bar, flags_of, given
from harness.profiling.settings import ProfileSettings
from harness.studying.settings import StudySettings


@click.command("profile")
@flags_of(ProfileSettings)
@click.option("--check", is_flag=True, help="Measure, and compare with the profile at --out instead of writing it.")
def profile_command(check: bool, **flags: Any) -> int:
    """Measure what a pair's forwards and the work around them cost on this machine."""
    from harness.profiling.profile import check_profile, profile_pair

    settings = from_flags(ProfileSettings, given(flags))
    if check:
        deviations = check_profile(settings, bar)
        for line in deviations.lines:
            click.echo(line)
        return deviations.exit_code
    profile = profile_pair(settings, bar)
    for role, error in profile.errors.items():
        click.echo(
            f"{role}: off by {error.median_pct:.1f}% (median) and {error.worst_pct:.1f}% (worst) "
            f"at {error.points} points beside the grid"
        )
    if profile.measured_with["marks"]:
        click.echo(f"treegraft: disturbed ({', '.join(profile.measured_with['marks'])}); measure again alone", err=True)
    if profile.weights == "random":
        click.echo("its weights were random: it has the times of such forwards, and nothing of what is accepted")
    click.echo(f"{settings.out}: use it as --clock profile:{settings.out}")
    return 0


@click.command("distill")
@flags_of(DistilSettings)
def distill_command(**flags: Any) -> None:
    """Train a middle drafter for a target on text that the target writes itself.

    The same command goes on where it was stopped: batches of text and the state of training lie in --work.
    """
    from harness.distil.distil import distil

    settings = from_flags(DistilSettings, given(flags))
    card = distil(settings, bar)
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
    from harness.fitting.edges import METHOD, fit_calibrated
    from harness.fitting.fit import fit

    settings = from_flags(FitSettings, given(flags))
    if settings.method == METHOD:
        fit_calibrated(run, settings, bar, click.echo)
        click.echo(_how_to_use(settings.out, METHOD))
        return
    artifact = fit(run, settings, bar, click.echo)
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
    from harness.fitting.oracle import oracle, oracle_table

    found = oracle(run, from_flags(OracleSettings, given(flags)), bar)
    click.echo(json.dumps(asdict(found), indent=1) if kind == "json" else oracle_table(found))


@click.command("study")
@click.argument("config", type=click.Path(path_type=Path))
@flags_of(StudySettings)
@click.option("--format", "kind", type=click.Choice(["table", "markdown", "json"]), default="table", show_default=True)
def study_command(config: Path, kind: str, **flags: Any) -> None:
    """Ask, modelled, how schedulers fitted under one condition do under another, as CONFIG says (harness/studies).

    A condition is a clock with changes to its machine and to how trees are drafted. Both runs are traced without a
    target forward; the same command goes on where it was stopped, and prints the same to the last digit.
    """
    from harness.studying.study import run_study
    from harness.studying.tables import render

    settings = from_flags(StudySettings, given(flags))
    findings = run_study(config, settings, bar)
    click.echo(render(findings, kind))
    if settings.figure is not None:
        from harness.studying.figure import draw

        draw(findings, Path(settings.figure))


MAKERS = (distill_command, profile_command, fit_command, oracle_command, study_command)
