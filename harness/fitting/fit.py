"""`treegraft fit`: trace rounds, fit values to them, distil the online scheduler, write the artifact."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hardware_profiles.profile import Profile
from harness.errors import UserError
from harness.fitting.arrays import timed_rounds
from harness.fitting.collect import Collector
from harness.fitting.judging import Note, call_gain, distilled, figures, planner
from harness.fitting.settings import FitSettings
from harness.flags import Bar
from harness.latency import profile_latency, told
from harness.provenance import versions
from harness.recorded import RecordedRun
from harness.retiming import CLOCK_PREFIX, profile_of
from methods.schedulers.artifact import Artifact, write_artifact
from methods.schedulers.scheduler import Latency
from methods.value_system.distilling import HIDDEN
from methods.value_system.values import FOLDS, ITERATIONS, TREES, fit_values
from tasks.known_eval import known_eval_digests, question_digest
from tasks.registry import get_task
from tasks.sources import load_questions


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
    out = out_folder(settings)
    refuse_eval_questions(recorded)
    collector = Collector(recorded, Path(settings.traces or f"{settings.out.rstrip('/')}-traces"))
    drafting = collector.spec.settings
    rounds = timed_rounds(collector.collect(bar), profile, latency, drafting)
    questions = len(np.unique(rounds.prompts))
    if questions < FOLDS:
        raise UserError(f"{run}: answers to {FOLDS} questions at least are needed; raise --limit of the run")
    note(f"{len(rounds)} rounds of {questions} questions")
    values = fit_values(rounds, settings.seed, note)
    variants, unseen = distilled(rounds, values.margins, settings.seed)
    artifact = Artifact(
        pair=recorded.pair.name,
        clock=f"{CLOCK_PREFIX}{profile.name}",
        drafting=collector.drafting,
        latency=(latency.target_ms, latency.middle_ms),
        rate=values.rate,
        call_gain=call_gain(rounds),
        variants=variants,
        card={
            "data": {name: task.sha256 for name, task in recorded.manifest.tasks.items()},
            "weights": {role: facts["sha256"] for role, facts in recorded.manifest.weights.items()},
            "questions": questions,
            "rounds": len(rounds),
            "recipe": {"seed": settings.seed, "trees": TREES, "hidden": list(HIDDEN), "iterations": ITERATIONS},
            "figures": figures(rounds, values, unseen, settings.seed, note),
            "versions": versions(),
        },
    )
    write_artifact(out, artifact, planner(rounds, values, settings.seed))
    return artifact


def opened(run: Path, clock: str) -> tuple[Profile, Latency, RecordedRun]:
    """Return a clock's profile, T_tgt and T_mid under it, and a recorded run.

    Raises:
        UserError: no such run or profile, or a profile without a middle's latencies.
    """
    recorded = RecordedRun(run)
    profile = profile_of(clock, recorded.pair)
    if profile is None:
        raise UserError("--clock wall: costs come from a profile; give profile:NAME")
    latency = told(profile_latency(profile, recorded.pair, median_prompt(recorded)))
    assert latency is not None  # a profile tells it
    return profile, latency, recorded


def median_prompt(recorded: RecordedRun) -> int:
    """Return the median of a run's prompts, in tokens."""
    return int(np.median([row.prompt_tokens for row in recorded.rows if row.prompt_tokens] or [1]))


def refuse_eval_questions(recorded: RecordedRun) -> None:
    """Refuse a run on questions that this suite measures on, whatever their file is called.

    Raises:
        UserError: it holds one; the line names it.
    """
    if recorded.config.split == "eval":
        raise UserError(f"{recorded.folder}: on questions to be measured on; run with --split fit, and fit on that")
    known = set(known_eval_digests())
    for name in recorded.config.tasks:
        try:
            known |= {
                question_digest(one) for one in load_questions(get_task(name), data=recorded.config.data).questions
            }
        except UserError:  # that source has none
            continue
    for row in recorded.rows:
        if question_digest(recorded.question(row.task, row.question_id)) in known:
            raise UserError(
                f"{recorded.folder}: {row.task}/{row.question_id} is a question to be measured on; take it out of the "
                "fit questions"
            )


def out_folder(settings: FitSettings) -> Path:
    """Return the folder of the finished artifact, made where it is missing.

    Raises:
        UserError: it cannot be made.
    """
    out = Path(settings.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: cannot be made ({error.strerror}); give another folder") from error
    return out
