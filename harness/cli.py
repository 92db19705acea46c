"""The command line. It gathers every room's commands lazily: `--help` imports no torch."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from harness.cli_makers import MAKERS
from harness.config import RunConfig
from harness.errors import UserError
from harness.flags import block_bar, flags_of, given

if TYPE_CHECKING:
    from harness.results import Row
    from reports.compare import Retiming

REPORT_FORMATS = click.Choice(["table", "markdown", "latex", "csv", "json"])
GATE_FORMATS = click.Choice(["table", "markdown", "json"])
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line; errors that a user can mend are one line and exit code 2."""
    sys.exit(invoke(sys.argv[1:]))


def invoke(arguments: list[str]) -> int:
    """Run the command line with `arguments`; return the exit code."""
    logging.basicConfig(format="treegraft: %(message)s")
    logging.getLogger("treegraft").setLevel(logging.INFO)
    debug = "--debug" in arguments
    parts = [part for part in arguments if part != "--debug"] or ["--help"]
    try:
        code = cli.main(parts, "treegraft", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Abort:
        click.echo("treegraft: interrupted; the same command with --out continues the run", err=True)
        return EXIT_INTERRUPTED
    except (UserError, click.ClickException) as error:
        if debug:
            traceback.print_exc()
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        click.echo(f"treegraft: {' '.join(message.split())}", err=True)
        return EXIT_USER_ERROR


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="treegraft-bench")
def cli() -> None:
    """Benchmark multi-drafter tree speculative decoding.

    `--debug` with any command shows the traceback of an error.
    """


@cli.command("run")
@click.argument("config", required=False, type=click.Path(path_type=Path))
@flags_of(RunConfig)
@click.option("--dry-run", is_flag=True, help="Say what would run and for how long, and stop.")
def run_command(config: Path | None, dry_run: bool, **flags: Any) -> int:
    """Run methods on tasks, or continue a run that was stopped.

    CONFIG is a YAML file with the flags as keys; it can also define methods.
    """
    from harness.estimate import plan_lines
    from harness.run import execute, make_plan

    plan = make_plan(config, given(flags))
    if dry_run:
        for line in plan_lines(plan):
            click.echo(line)
        return 0
    outcome = execute(plan, progress=block_bar, command=["treegraft", *sys.argv[1:]])
    for row in outcome.failed[:5]:
        click.echo(f"failed: {row.task}/{row.question_id}/{row.turn} {row.method}: {row.error}", err=True)
    for row in outcome.different[:5]:
        click.echo(f"different: {row.task}/{row.question_id}/{row.turn} {row.method}", err=True)
    counts = f"{len(outcome.rows)} rows, {len(outcome.failed)} failed, {len(outcome.different)} different"
    click.echo(f"{outcome.folder}: {counts}; see it with: treegraft report {outcome.folder}")
    return outcome.exit_code


@cli.command()
@click.argument("folder", metavar="DIR", required=False, type=click.Path(path_type=Path))
@click.option("--format", "kind", type=REPORT_FORMATS, default="table", show_default=True)
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Write there instead of the terminal.")
def report(folder: Path | None, kind: str, output: Path | None) -> None:
    """Write the comparison table of a run (by default the newest under runs/)."""
    from reports.tables import render_report

    _write(render_report(folder or _newest_run(), kind), output)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text)
        return
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{output}: cannot be written ({error.strerror}); give another --output") from error


def _newest_run() -> Path:
    runs = [folder for folder in Path("runs").glob("*") if (folder / "manifest.json").is_file()]
    if not runs:
        raise UserError("runs: no run to report on here; give the folder of one")
    return max(runs, key=lambda folder: (folder / "manifest.json").stat().st_mtime)


@cli.command("compare")
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("head", type=click.Path(path_type=Path))
@click.option("--margin", metavar="SHARE", help="Largest accepted loss of speedup.  [default: 5%; with replay 0%]")
@click.option("--methods", metavar="x,y", help="Methods that both runs have.  [default: all]")
@click.option("--mode", type=click.Choice(["wall", "replay"]), default="wall", show_default=True)
@click.option("--clock", metavar="profile:NAME", help="With replay: re-time both runs by a hardware profile.")
@click.option("--format", "kind", type=GATE_FORMATS, default="table", show_default=True)
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Write there instead of the terminal.")
def compare_command(
    base: Path, head: Path, margin: str | None, methods: str | None, mode: Literal["wall", "replay"], **options: Any
) -> int:
    """Tell whether HEAD's methods are as fast as BASE's, each against its own run's baseline.

    Exits 0 if the one-sided 95% bound of every method lies inside the margin, 1 if not, 3 if nothing is comparable.
    """
    from reports.compare import compare, parse_margin
    from reports.gate_text import render_comparison

    clock = options["clock"]
    if clock is not None and mode != "replay":
        raise UserError(f"--clock {clock}: for modelled times alone; add --mode replay")
    comparison = compare(
        base,
        head,
        mode=mode,
        margin=None if margin is None else parse_margin(margin),
        methods=None if methods is None else [name.strip() for name in methods.split(",")],
        retime=None if clock is None else (_retime(clock, base), _retime(clock, head)),
    )
    _write(render_comparison(comparison, options["kind"]), options["output"])
    return comparison.exit_code


def _retime(clock: str, run: Path) -> Retiming:
    from harness.asked import methods_asked, pair_asked
    from harness.results import read_manifest
    from harness.retiming import profile_of, retimed
    from methods.catalog import needed_drafters, weighs_times
    from reports.compare import Retiming

    folder = run.parent if run.is_file() else run
    manifest = read_manifest(folder)
    profile = profile_of(clock, pair_asked(manifest, folder))
    if profile is None:
        raise UserError(f"--clock {clock}: not modelled; give profile:NAME, or compare with --mode wall")
    specs = methods_asked(manifest, folder)
    neural = {name: needed_drafters(spec) for name, spec in specs.items()}

    def retime(row: Row) -> Row | None:
        if row.method not in neural:
            raise UserError(f"rows of method {row.method}, which the manifest does not know; restore the files")
        return None if weighs_times(specs[row.method]) else retimed(row, profile, neural[row.method])

    return Retiming(retime, profile.caption(str(manifest.pair.get("name"))))


@cli.command("replay")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--clock", required=True, metavar="profile:NAME", help="What to charge the recorded forwards.")
@click.option(
    "--methods",
    metavar="x,y",
    help="Methods of the run, or others to draft along its text.  [default: those of --config, or its own]",
)
@click.option(
    "--artifact",
    metavar="NAME",
    help="What fitted methods that the run did not hold were fitted to be.  [default: the pair's]",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A configuration; its methods, steps, width and budget are read.",
)
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Keep the rows there.")
@click.option("--format", "kind", type=REPORT_FORMATS, default="table", show_default=True)
def replay_command(
    run: Path, clock: str, methods: str | None, artifact: str | None, config: Path | None, out: Path | None, kind: str
) -> None:
    """Time a recorded run by a hardware profile; the same call prints the same, to the last digit."""
    import tempfile

    from harness.replay import replay
    from reports.tables import render_report

    names = None if methods is None else [name.strip() for name in methods.split(",")]
    replayed = replay(run, clock, names, artifact, config)
    with tempfile.TemporaryDirectory() as scratch:
        folder = out or Path(scratch) / "run"
        replayed.write(folder)
        try:
            click.echo(render_report(folder, kind))
        except UserError as error:
            raise UserError(str(error).replace(str(folder), str(out or run))) from error
    if replayed.left_out:
        click.echo(f"treegraft: without {', '.join(replayed.left_out)}, whose rounds nobody sees", err=True)


@cli.command("ls")
@click.argument("what", type=click.Choice(["methods", "tasks", "pairs", "profiles"]))
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_command(what: str, as_json: bool) -> None:
    """List what this installation knows, plug-ins included."""
    from harness.listing import listing

    lines = listing(what)
    if as_json:
        click.echo(json.dumps(lines, indent=1))
        return
    width = max(len(line["name"]) for line in lines)
    for line in lines:
        click.echo(f"{line['name']:<{width}}  {line['about']}")


@cli.command()
@click.argument("config", type=click.Path(path_type=Path))
def validate(config: Path) -> None:
    """Check a configuration: keys, values, methods, tasks and data."""
    from harness.run import check_environment, make_plan

    plan = make_plan(config, {})
    check_environment(plan)
    names = ", ".join(spec.name for spec in plan.methods)
    click.echo(f"{config}: good; {len(plan.blocks)} blocks of {names} on pair {plan.pair.name}")


@cli.command()
def doctor() -> int:
    """Say what this machine has and lacks for a run of the default pair."""
    from harness.doctor import examine

    findings = examine()
    for finding in findings:
        click.echo(f"{'ok' if finding.good else '--'}  {finding.text}")
    return 0 if all(finding.good or finding.optional for finding in findings) else EXIT_USER_ERROR


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("question", metavar="TASK/ID[/TURN]")
@click.option("--method", required=True, help="Whose trees.")
@click.option("--round", "round_number", type=int, help="Only this round, from 0.")
def show(run: Path, question: str, method: str, round_number: int | None) -> None:
    """Draw the trees of an answer: what was proposed, by whom, and what was accepted.

    With --round, the tree as it was drafted, what the prune cut away included.
    """
    from rich.console import Console

    from harness.show import drawings

    console = Console()
    for drawing in drawings(run, question, method, round_number):
        console.print(drawing)


for command in MAKERS:
    cli.add_command(command)
