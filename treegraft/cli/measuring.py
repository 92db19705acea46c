"""Commands that measure, or check what can be measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from foundation.progress import terminal_bar
from harness.config.configuration import from_flags
from harness.config.run_config import RunConfig
from harness.profiling.settings import ProfileSettings
from treegraft.cli.flags import flags_of, given

_SHOWN_ROWS = 5


@click.command("run")
@click.argument("config", required=False, type=click.Path(path_type=Path))
@flags_of(RunConfig)
@click.option("--dry-run", is_flag=True, help="Say what would run and for how long, and stop.")
def run_command(config: Path | None, dry_run: bool, **flags: Any) -> int:
    """Run methods on tasks, or continue a run that was stopped.

    CONFIG is a YAML file with the flags as keys; it can also define methods.
    """
    from harness.run.dry_run import plan_lines
    from harness.run.execution import execute
    from harness.run.plan import make_plan

    plan = make_plan(config, given(flags))
    if dry_run:
        for line in plan_lines(plan):
            click.echo(line)
        return 0
    outcome = execute(plan, progress=terminal_bar, command=["treegraft", *sys.argv[1:]])
    for row in outcome.failed[:_SHOWN_ROWS]:
        click.echo(f"failed: {row.task}/{row.question_id}/{row.turn} {row.method}: {row.error}", err=True)
    for row in outcome.different[:_SHOWN_ROWS]:
        click.echo(f"different: {row.task}/{row.question_id}/{row.turn} {row.method}", err=True)
    counts = f"{len(outcome.rows)} rows, {len(outcome.failed)} failed, {len(outcome.different)} different"
    click.echo(f"{outcome.folder}: {counts}; see it with: treegraft report {outcome.folder}")
    return outcome.exit_code


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
def validate(config: Path) -> None:
    """Check a configuration: keys, values, methods, tasks and data."""
    from harness.run.plan import check_environment, make_plan

    plan = make_plan(config, {})
    check_environment(plan)
    names = ", ".join(spec.name for spec in plan.methods)
    click.echo(f"{config}: good; {len(plan.blocks)} blocks of {names} on pair {plan.pair.name}")


@click.command()
def doctor() -> int:
    """Say what this machine has and lacks for a run of the default pair."""
    from treegraft.cli.doctor import examine

    findings = examine()
    for finding in findings:
        click.echo(f"{'ok' if finding.good else '--'}  {finding.text}")
    return 0 if all(finding.good or finding.optional for finding in findings) else 2


@click.command("profile")
@flags_of(ProfileSettings)
@click.option("--check", is_flag=True, help="Measure, and compare with the profile at --out instead of writing it.")
def profile_command(check: bool, **flags: Any) -> int:
    """Measure what a pair's forwards and the work around them cost on this machine."""
    from harness.profiling.profile_pair import check_profile, profile_pair

    settings = from_flags(ProfileSettings, given(flags))
    if check:
        deviations = check_profile(settings, terminal_bar)
        for line in deviations.lines:
            click.echo(line)
        return deviations.exit_code
    profile = profile_pair(settings, terminal_bar)
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


COMMANDS = (run_command, validate, doctor, profile_command)
