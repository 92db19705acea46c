"""Commands that read runs: reports, comparisons, replays, drawings, and lists of what is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import click

from foundation.atomic_write import write_text_whole
from foundation.errors import UserError

REPORT_FORMATS = click.Choice(["table", "markdown", "latex", "csv", "json"])
GATE_FORMATS = click.Choice(["table", "markdown", "json"])


@click.command()
@click.argument("folder", metavar="DIR", required=False, type=click.Path(path_type=Path))
@click.option("--format", "kind", type=REPORT_FORMATS, default="table", show_default=True)
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Write there instead of the terminal.")
def report(folder: Path | None, kind: str, output: Path | None) -> None:
    """Write the comparison table of a run (by default the newest under runs/)."""
    from reports.tables import render_report

    _write(render_report(folder or _newest_run(), kind), output)


@click.command("compare")
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
    from harness.replay.retimed_run import retimer
    from reports.compare import Retiming, compare, parse_margin
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
        retime=None if clock is None else (Retiming(*retimer(clock, base)), Retiming(*retimer(clock, head))),
    )
    _write(render_comparison(comparison, options["kind"]), options["output"])
    return comparison.exit_code


@click.command("replay")
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
    help="Trained artifact of fitted methods that the run did not hold.  [default: the pair's]",
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
    from harness.replay.replaying import replay
    from reports.run_facts import run_facts_of
    from reports.tables import build_report, render

    names = None if methods is None else [name.strip() for name in methods.split(",")]
    replayed = replay(run, clock, names, artifact, config)
    if out is not None:
        replayed.write(out)
    facts = run_facts_of(replayed.manifest.model_dump(mode="json"))
    click.echo(render(build_report(replayed.rows, facts, str(out or run)), kind))
    for name, reason in replayed.left_out.items():
        click.echo(f"treegraft: without {name}: {reason}", err=True)


@click.command("ls")
@click.argument("what", type=click.Choice(["methods", "tasks", "pairs", "profiles"]))
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_command(what: str, as_json: bool) -> None:
    """List what this installation knows, plug-ins included."""
    from treegraft.cli.listing import listing

    lines = listing(what)
    if as_json:
        click.echo(json.dumps(lines, indent=1))
        return
    width = max(len(line["name"]) for line in lines)
    for line in lines:
        click.echo(f"{line['name']:<{width}}  {line['about']}")


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("question", metavar="TASK/ID[/TURN]")
@click.option("--method", required=True, help="Whose trees.")
@click.option("--round", "round_number", type=int, help="Only this round, from 0.")
def show(run: Path, question: str, method: str, round_number: int | None) -> None:
    """Draw the trees of an answer: what was proposed, by whom, and what was accepted.

    With --round, the tree as it was drafted, what the prune cut away included.
    """
    from rich.console import Console

    from harness.replay.drawing import drawings

    console = Console()
    drawn = [*drawings(run, question, method, round_number)]  # an edited answer is refused before anything is printed
    for drawing in drawn:
        console.print(drawing)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text)
        return
    from harness.records.manifest import MANIFEST_FILE
    from harness.records.rows import ROWS_FILE

    if output.name in (ROWS_FILE, MANIFEST_FILE):
        raise UserError(f"--output {output}: would take the place of a run's own file; give another --output")
    write_text_whole(output, text + "\n", "give another --output")


def _newest_run() -> Path:
    runs = [folder for folder in Path("runs").glob("*") if (folder / "manifest.json").is_file()]
    if not runs:
        raise UserError("runs: no run to report on here; give the folder of one")
    return max(runs, key=lambda folder: (folder / "manifest.json").stat().st_mtime)


COMMANDS = (report, compare_command, replay_command, list_command, show)
