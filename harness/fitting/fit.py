"""`treegraft fit`: trace rounds, fit values to them, distil the online scheduler, write the artifact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from hardware_profiles.profile import Profile
from harness.errors import UserError
from harness.fitting.arrays import priced_rounds
from harness.fitting.collect import Collector
from harness.fitting.judging import Lessons, Note, call_gain, check_decisions, distilled, figures, planner
from harness.fitting.settings import FitSettings
from harness.flags import Bar
from harness.latency import profile_latency, told
from harness.provenance import FITTERS, versions
from harness.recorded import RecordedRun
from harness.results import Row
from harness.retiming import CLOCK_PREFIX, profile_of
from methods.schedulers.artifact import PLANNER_FILE, SCHEDULER_FILE, Artifact, write_artifact
from methods.schedulers.scheduler import Latency, most_calls
from methods.settings import Settings
from methods.value_system.distilling import HIDDEN
from methods.value_system.values import FOLDS, ITERATIONS, TREES
from tasks.known_eval import measured_digests, plain_digest


def fit(run: Path, settings: FitSettings, bar: Bar, note: Note) -> Artifact:
    """Fit an online scheduler to a run on questions for fitting.

    Args:
        run: the folder of a run; the baseline's greedy answers are traced.
        settings: what is asked.
        bar: shows how far tracing is.
        note: told what was found.

    Returns:
        The artifact, as it stands in the folder.

    Raises:
        UserError: unusable input, or a run that holds questions to be measured on.
    """
    profile, latency, recorded = opened(run, settings.clock)
    out = out_folder(settings, (SCHEDULER_FILE, PLANNER_FILE))
    refuse_eval_questions(recorded)
    collector = Collector(recorded, Path(settings.traces) if settings.traces else run / "traces")
    drafting = collector.spec.settings
    check_questions(collector.answers, run)
    answers = collector.collect(bar)
    priced = priced_rounds(answers, profile, latency, drafting, settings.decision_ms)
    check_decisions(priced.learned, str(run))
    note(told_of(profile, latency, recorded, drafting, settings.decision_ms))
    lessons = Lessons.of(priced.learned, settings.seed, note)
    questions = len(np.unique(lessons.paper.prompts))
    variants, unseen = distilled(lessons, settings.seed)
    artifact = Artifact(
        pair=recorded.pair.name,
        clock=f"{CLOCK_PREFIX}{profile.name}",
        drafting=collector.drafting,
        latency=(latency.target_ms, latency.middle_ms),
        rate=lessons.values.rate,
        call_gain=call_gain(lessons.paper),
        variants=variants,
        card={
            "data": {name: task.sha256 for name, task in recorded.manifest.tasks.items()},
            "weights": {role: facts["sha256"] for role, facts in recorded.manifest.weights.items()},
            "questions": questions,
            "questions_seen": sorted({answer.facts["question"] for answer in answers}),
            "rounds": len(lessons.paper),
            "recipe": {
                "seed": settings.seed,
                "trees": TREES,
                "hidden": list(HIDDEN),
                "iterations": ITERATIONS,
                "decision_ms": settings.decision_ms,
            },
            "figures": figures(priced, lessons, unseen, settings.seed, note),
            "versions": versions(FITTERS),
        },
    )
    write_artifact(out, artifact, planner(lessons.paper, lessons.values, settings.seed))
    return artifact


def check_questions(answers: Sequence[Row], run: Path) -> None:
    """Refuse answers to too few questions to fit anything to.

    Raises:
        UserError: they are fewer than folds.
    """
    if len({(row.task, row.question_id) for row in answers}) < FOLDS:
        raise UserError(f"{run}: answers to {FOLDS} questions at least are needed; raise --limit of the run")


def told_of(
    profile: Profile, latency: Latency, recorded: RecordedRun, drafting: Settings, decision_ms: float | None
) -> str:
    """Return what the numbers of a run's traces are: modelled, and of what.

    Args:
        profile: what things cost.
        latency: T_tgt and T_mid under it.
        recorded: the run.
        drafting: settings of the traced rounds.
        decision_ms: what a decision of a fitted scheduler takes at least.
    """
    charged = max(profile.costs.scheduler_ms, decision_ms or 0.0)
    return (
        f"{profile.caption(recorded.pair.name)}; T_tgt {latency.target_ms:.2f} ms, T_mid {latency.middle_ms:.2f} ms, "
        f"B0 {most_calls(drafting.max_calls, latency)}; a fitted scheduler's decision {charged:g} ms."
    )


def opened(run: Path, clock: str) -> tuple[Profile, Latency, RecordedRun]:
    """Return a clock's profile, T_tgt and T_mid under it, and a recorded run.

    Raises:
        UserError: no such run or profile, or a profile without a middle's latencies.
    """
    recorded = RecordedRun(run)
    profile = profile_of(clock, recorded.pair)
    if profile is None:
        raise UserError("--clock wall: costs come from a profile; give profile:NAME")
    latency = told(profile_latency(profile, recorded.pair, recorded.config, recorded.median_prompt))
    assert latency is not None  # a profile tells it
    return profile, latency, recorded


def refuse_eval_questions(recorded: RecordedRun) -> None:
    """Refuse a run on questions that this suite measures on, whatever their file is called, or of a held-out pair.

    Raises:
        UserError: it is of one, or holds one; the line names it.
    """
    if recorded.pair.held_out is True:
        raise UserError(
            f"{recorded.folder}: pair {recorded.pair.name} is held out of fitting; fit to a run of another pair"
        )
    if recorded.config.split == "eval":
        raise UserError(f"{recorded.folder}: on questions to be measured on; run with --split fit, and fit on that")
    known = measured_digests(recorded.config.data, recorded.config.tasks)
    for task, number in dict.fromkeys((row.task, row.question_id) for row in recorded.rows):
        if plain_digest(recorded.question(task, number).turns[0]) in known:
            raise UserError(
                f"{recorded.folder}: {task}/{number} is a question to be measured on; take it out of the fit questions"
            )


def out_folder(settings: FitSettings, names: Sequence[str]) -> Path:
    """Return the folder of the finished artifact, made where it is missing.

    Args:
        settings: name it.
        names: of the files that will be written into it, hours later perhaps.

    Raises:
        UserError: it cannot be made, or they could not be written.
    """
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
