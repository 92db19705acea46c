"""The command line. It gathers every room's commands lazily: `--help` imports no torch."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from harness.config import RunConfig, from_flags
from harness.distil.settings import DistilSettings
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.plan import Block
    from harness.run import Plan

Function = TypeVar("Function", bound=Callable[..., Any])

METAVARS = {"tasks": "a,b", "methods": "x,y", "layers": "0,1,…", "stop": "TEXT", "prompts": "FILE"}
METAVARS |= dict.fromkeys(("out", "data", "work"), "DIR")
REPEATED = {"stop", "prompts"}
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


def _flags_of(model: type[BaseModel]) -> Callable[[Function], Function]:
    """Give a command one flag for every key of a settings model, with its meaning and default."""

    def decorate(function: Function) -> Function:
        for name, field in reversed(model.model_fields.items()):
            function = _flag(name, field)(function)
        return function

    return decorate


def _flag(name: str, field: FieldInfo) -> Callable[[Function], Function]:
    kind = field.annotation
    default = "required" if field.is_required() else _shown(field.get_default(call_default_factory=True))
    options: dict[str, Any] = {"default": None, "help": f"{field.description}  [default: {default}]"}
    if kind is bool:
        options.update(is_flag=True, default=None)
    elif name in REPEATED:
        options.update(multiple=True, default=None)
    elif get_origin(kind) is not list:
        options["type"] = next(part for part in (*_parts(kind), str) if part in (int, float, str))
    if name in METAVARS:
        options["metavar"] = METAVARS[name]
    return click.option(f"--{name.replace('_', '-')}", name, **options)


def _parts(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _shown(default: Any) -> str:
    if default is None:
        return "see above"
    if isinstance(default, list):
        return ",".join(default) or "none"
    return str(default).lower() if isinstance(default, bool) else str(default)


@cli.command("run")
@click.argument("config", required=False, type=click.Path(path_type=Path))
@_flags_of(RunConfig)
@click.option("--dry-run", is_flag=True, help="Say what would run and for how long, and stop.")
def run_command(config: Path | None, dry_run: bool, **flags: Any) -> int:
    """Run methods on tasks, or continue a run that was stopped.

    CONFIG is a YAML file with the flags as keys; it can also define methods.
    """
    from harness.run import execute, make_plan

    plan = make_plan(config, _given(flags))
    if dry_run:
        _say_plan(plan)
        return 0
    outcome = execute(plan, progress=_progress, command=["treegraft", *sys.argv[1:]])
    for row in outcome.failed[:5]:
        click.echo(f"failed: {row.task}/{row.question_id}/{row.turn} {row.method}: {row.error}", err=True)
    for row in outcome.different[:5]:
        click.echo(f"different: {row.task}/{row.question_id}/{row.turn} {row.method}", err=True)
    counts = f"{len(outcome.rows)} rows, {len(outcome.failed)} failed, {len(outcome.different)} different"
    click.echo(f"{outcome.folder}: {counts}; see it with: treegraft report {outcome.folder}")
    return outcome.exit_code


def _given(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the flags that were typed, 0 and "" among them."""
    typed = {key: value for key, value in flags.items() if value not in (None, ()) and value is not False}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in typed.items()}


@contextmanager
def _progress(blocks: Iterable[Block], count: int) -> Iterator[Iterator[Block]]:
    """Show a progress bar with the remaining time, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("blocks"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield iter(bar.track(blocks, total=count))


def _say_plan(plan: Plan) -> None:
    from harness.estimate import one_token_seconds

    config = plan.config
    for task, data in plan.data.items():
        click.echo(f"{task}: {data.n} questions ({data.split}) from {data.source}: {data.origin}")
    for spec in plan.methods:
        settings = spec.settings.model_dump(exclude_defaults=True)
        click.echo(f"{spec.name}: {spec.family} {json.dumps(settings) if settings else '(defaults)'}")
    seconds = one_token_seconds(plan)
    most = plan.answers * config.max_new_tokens * seconds
    click.echo(
        f"{plan.answers} answers of at most {config.max_new_tokens} tokens; a one-token forward takes "
        f"{seconds * 1e3:.1f} ms here, so about {most / 60:.0f} minutes at most, less what speculation saves"
    )


@cli.command()
@click.argument("folder", metavar="DIR", required=False, type=click.Path(path_type=Path))
@click.option(
    "--format", "kind", type=click.Choice(["table", "markdown", "csv", "json"]), default="table", show_default=True
)
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Write there instead of the terminal.")
def report(folder: Path | None, kind: str, output: Path | None) -> None:
    """Write the comparison table of a run (by default the newest under runs/)."""
    from reports.tables import render_report

    text = render_report(folder or _newest_run(), kind)
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


@cli.command("ls")
@click.argument("what", type=click.Choice(["methods", "tasks", "pairs"]))
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


@cli.command("distill")
@_flags_of(DistilSettings)
def distill_command(**flags: Any) -> None:
    """Train a middle drafter for a target on text that the target writes itself.

    The same command goes on where it was stopped: batches of text and the state of training lie in --work.
    """
    from harness.distil.distil import distil

    settings = from_flags(DistilSettings, _given(flags))
    card = distil(settings, _bar)
    overall = ", ".join(f"{top} {share:.1%}" for top, share in card.figures["agreement"]["overall"].items())
    click.echo(
        f"{settings.out}: agreement {overall}; use it as  middle: {{distilled: {settings.out}}}  in a pair's file"
    )


@contextmanager
def _bar(title: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """Show a progress bar with the remaining time on a terminal, elsewhere a line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=total, note="")
        yield lambda count, note: bar.update(task, advance=count, note=note)
