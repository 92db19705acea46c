"""`treegraft fit`: traces rounds, fits values to them, distils the online scheduler, writes the artifact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from foundation.errors import UserError
from foundation.progress import Bar
from hardware_profiles.profile import Profile
from harness.clocks.cost_model import CLOCK_PREFIX, profile_of
from harness.clocks.latency import profile_latency
from harness.records.provenance import FITTERS, versions
from harness.records.schema import Row
from harness.replay.recorded_run import RecordedRun
from harness.training.distillation import HIDDEN
from harness.training.policy_evaluation import (
    FittedValues,
    Note,
    call_gain,
    check_decisions,
    distil_networks,
    figures,
    planner,
)
from harness.training.q_values import FOLDS, ITERATIONS, TREES
from harness.training.settings import FitSettings
from harness.training.trace_collection import Collector
from harness.training.trace_costs import priced_rounds
from methods.artifacts.files import PLANNER_FILE, SCHEDULER_FILE
from methods.latency import Latency
from methods.schedulers.artifact import Artifact, write_artifact
from methods.schedulers.scheduler import most_calls
from methods.settings import Settings
from tasks.known_eval import measured_digests, plain_digest


def fit(run: Path, settings: FitSettings, bar: Bar, note: Note) -> Artifact:
    """Fit an online scheduler to a run on the dev split; return the artifact, as written to the folder.

    Args:
        run: the folder of a run, whose baseline's greedy answers are traced.
        settings: flags of the command.
        bar: shows how far tracing is.
        note: prints a line.

    Raises:
        UserError: unusable input, or a run that holds evaluation questions.
    """
    profile, latency, recorded = open_run(run, settings.clock)
    out = out_folder(settings, (SCHEDULER_FILE, PLANNER_FILE))
    refuse_eval_questions(recorded)
    collector = Collector(recorded, Path(settings.traces) if settings.traces else run / "traces")
    drafting = collector.spec.settings
    check_questions(collector.answers, run)
    answers = collector.collect(bar)
    priced = priced_rounds(answers, profile, latency, drafting, settings.decision_ms)
    check_decisions(priced.learned, str(run))
    note(caption_of(profile, latency, recorded, drafting, settings.decision_ms))
    fitted = FittedValues.of(priced.learned, settings.seed, note)
    variants, unseen = distil_networks(fitted, settings.seed)
    artifact = Artifact(
        pair=recorded.pair.name,
        clock=f"{CLOCK_PREFIX}{profile.name}",
        drafting=collector.drafting,
        latency=(latency.target_ms, latency.middle_ms),
        rate=fitted.values.rate,
        call_gain=call_gain(fitted.paper),
        variants=variants,
        card={
            "data": {name: task.sha256 for name, task in recorded.manifest.tasks.items()},
            "weights": {role: facts["sha256"] for role, facts in recorded.manifest.weights.items()},
            "questions": len(np.unique(fitted.paper.prompts)),
            "questions_seen": sorted({answer.facts["question"] for answer in answers}),
            "rounds": len(fitted.paper),
            "recipe": {
                "seed": settings.seed,
                "trees": TREES,
                "hidden": list(HIDDEN),
                "iterations": ITERATIONS,
                "decision_ms": settings.decision_ms,
            },
            "figures": figures(priced, fitted, unseen, settings.seed, note),
            "versions": versions(FITTERS),
        },
    )
    write_artifact(out, artifact, planner(fitted.paper, fitted.values, settings.seed))
    return artifact


def check_questions(answers: Sequence[Row], run: Path) -> None:
    """Refuse answers to fewer questions than folds."""
    if len({(row.task, row.question_id) for row in answers}) < FOLDS:
        raise UserError(f"{run}: answers to {FOLDS} questions at least are needed; raise --limit of the run")


def caption_of(
    profile: Profile, latency: Latency, recorded: RecordedRun, drafting: Settings, decision_ms: float | None
) -> str:
    """Return the caption of a run's modelled numbers: its cost model, latencies, B0 and a decision's least time."""
    charged = max(profile.costs.scheduler_ms, decision_ms or 0.0)
    return (
        f"{profile.caption(recorded.pair.name)}; T_tgt {latency.target_ms:.2f} ms, T_mid {latency.middle_ms:.2f} ms, "
        f"B0 {most_calls(drafting.max_calls, latency)}; a fitted scheduler's decision {charged:g} ms."
    )


def open_run(run: Path, clock: str) -> tuple[Profile, Latency, RecordedRun]:
    """Return a clock's profile, T_tgt and T_mid under it, and a recorded run."""
    recorded = RecordedRun(run)
    profile = profile_of(clock, recorded.pair)
    if profile is None:
        raise UserError("--clock wall: costs come from a profile; give profile:NAME")
    latency = profile_latency(profile, recorded.pair, recorded.config, recorded.median_prompt)
    return profile, latency, recorded


def refuse_eval_questions(recorded: RecordedRun) -> None:
    """Refuse a run on any evaluation question, whatever its file is called, or of a held-out pair."""
    if recorded.pair.held_out is True:
        raise UserError(
            f"{recorded.folder}: pair {recorded.pair.name} is held out of fitting; fit to a run of another pair"
        )
    if recorded.config.split == "eval":
        raise UserError(f"{recorded.folder}: on questions to be measured on; run with --split fit, and fit on that")
    evaluation = measured_digests(recorded.config.data, recorded.config.tasks)
    for task, number in dict.fromkeys((row.task, row.question_id) for row in recorded.rows):
        if plain_digest(recorded.question(task, number).turns[0]) in evaluation:
            raise UserError(
                f"{recorded.folder}: {task}/{number} is a question to be measured on; take it out of the fit questions"
            )


def out_folder(settings: FitSettings, names: Sequence[str]) -> Path:
    """Return the artifact's folder, made where missing, if files `names` can be written there hours later."""
    out = Path(settings.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UserError(f"--out {out}: cannot be made or written ({error.strerror}); give another folder") from error
    taken = [name for name in names if (out / name).is_dir()]
    if taken:
        raise UserError(f"--out {out}: {taken[0]} is a folder there; move it away, or give another")
    return out
