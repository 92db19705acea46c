"""`treegraft fit`: trace rounds, fit values to them, distil the online scheduler, write the artifact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hardware_profiles.profile import Profile
from harness.errors import UserError
from harness.fitting.arrays import timed_rounds
from harness.fitting.collect import MIXED, Collector, traced
from harness.fitting.settings import FitSettings
from harness.flags import Bar
from harness.latency import profile_latency, told
from harness.provenance import versions
from harness.recorded import RecordedRun
from harness.retiming import profile_of
from methods.catalog import MethodSpec
from methods.schedulers.artifact import DRAFTING_KEYS, Artifact, Network, Planner, write_artifact
from methods.schedulers.scheduler import Latency
from methods.schedulers.signals import signal_groups
from methods.value_system import rivals
from methods.value_system.distilling import HIDDEN, distil, unseen_margins
from methods.value_system.rounds import Rounds, always, bits_of, hindsight
from methods.value_system.traces import TracedAnswer
from methods.value_system.values import FOLDS, TREES, Values, classification, decisions, final_models, fit_values
from tasks.known_eval import known_eval_digests, question_digest
from tasks.registry import get_task
from tasks.sources import load_questions

Note = Callable[[str], None]

_LEAST_PROMPTS = FOLDS


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
    out = _out_folder(settings)
    refuse_eval_questions(recorded)
    folder = Path(settings.traces or f"{settings.out.rstrip('/')}-traces")
    collector = Collector(recorded, folder, latency, every=settings.every, seed=settings.seed)
    spec = collector.drafting
    answers: list[TracedAnswer] = []
    for number in range(1, settings.passes + 1):
        first = number == 1
        answers += traced(collector.collect(MIXED if first else ["learned"], None if first else out, bar))
        rounds = timed_rounds(answers, profile, latency, spec.settings)
        if len(np.unique(rounds.prompts)) < _LEAST_PROMPTS:
            raise UserError(
                f"{run}: rounds of {_LEAST_PROMPTS} questions at least are needed; raise --limit of the run"
            )
        note(f"pass {number}: {len(rounds)} rounds of {len(np.unique(rounds.prompts))} questions")
        values = fit_values(rounds, settings.seed, note)
        artifact, planner = _artifact(recorded, rounds, values, spec, settings, latency, note)
        write_artifact(out, artifact, planner)
    return artifact


def opened(run: Path, clock: str) -> tuple[Profile, Latency, RecordedRun]:
    """Return a clock's profile, T_tgt and T_mid under it, and a recorded run.

    Raises:
        UserError: no such run or profile, or a profile without a middle's latencies.
    """
    profile = profile_of(clock)
    if profile is None:
        raise UserError("--clock wall: costs come from a profile; give profile:NAME")
    recorded = RecordedRun(run)
    lengths = [row.prompt_tokens for row in recorded.rows if row.prompt_tokens]
    latency = told(profile_latency(profile, recorded.pair, int(np.median(lengths or [1]))))
    assert latency is not None  # a profile tells it
    return profile, latency, recorded


def refuse_eval_questions(recorded: RecordedRun) -> None:
    """Refuse a run on questions that this suite measures on, whatever their file is called.

    Raises:
        UserError: it holds one; the line names it.
    """
    if recorded.config.split == "eval":
        raise UserError("RUN: on questions to be measured on; run with --split fit, and fit on that")
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
                f"RUN: {row.task}/{row.question_id} is a question to be measured on; take it out of the fit questions"
            )


def _out_folder(settings: FitSettings) -> Path:
    out = Path(settings.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: cannot be made ({error.strerror}); give another folder") from error
    return out


def _artifact(
    recorded: RecordedRun,
    rounds: Rounds,
    values: Values,
    spec: MethodSpec,
    settings: FitSettings,
    latency: Latency,
    note: Note,
) -> tuple[Artifact, Planner]:
    variants: dict[str, Network] = {"full": distil(rounds, values.margins, settings.seed)}
    unseen = {"full": rounds.outcome(decisions(unseen_margins(rounds, values.margins, settings.seed)))}
    for group, names in signal_groups(rounds.steps).items():
        less = rounds.without(names)
        own = fit_values(less, settings.seed, lambda line: None)
        variants[f"no-{group}"] = distil(less, own.margins, settings.seed)
        unseen[f"no-{group}"] = less.outcome(decisions(unseen_margins(less, own.margins, settings.seed)))
    once = 2**rounds.steps + 2 ** (rounds.steps - 1)
    never = 2**rounds.steps
    artifact = Artifact(
        pair=recorded.pair.name,
        clock=settings.clock,
        drafting=spec.settings.model_dump(mode="json", include=set(DRAFTING_KEYS)),
        latency=(latency.target_ms, latency.middle_ms),
        rate=values.rate,
        call_gain=float((rounds.committed[:, once] - rounds.committed[:, never]).mean()),
        variants=variants,
        card={
            "data": {name: task.sha256 for name, task in recorded.manifest.tasks.items()},
            "weights": {role: facts["sha256"] for role, facts in recorded.manifest.weights.items()},
            "questions": len(np.unique(rounds.prompts)),
            "rounds": len(rounds),
            "recipe": {**settings.model_dump(exclude={"out", "traces"}), "trees": TREES, "hidden": list(HIDDEN)},
            "figures": _figures(rounds, values, unseen, settings.seed, note),
            "versions": versions(),
        },
    )
    models = final_models(rounds, values, settings.seed)
    texts = {
        step: {"call": call.booster_.model_to_string(), "skip": skip.booster_.model_to_string()}
        for step, (call, skip) in models.items()
    }
    return artifact, Planner(signals=list(rounds.names), steps=texts)


def _figures(
    rounds: Rounds, values: Values, unseen: dict[str, Any], seed: int, note: Note
) -> dict[str, dict[str, float]]:
    """Return what each policy reaches on prompts that it has not seen: its rate, gap to hindsight, calls a round."""
    best = hindsight(rounds)
    policies = {
        "never": always(rounds, 2**rounds.steps),
        "best fixed schedule": rivals.best_fixed(rounds, seed),
        "threshold": rivals.threshold(rounds, seed),
        "bandit": rivals.bandit(rounds, seed),
        "cost-sensitive classification": fit_values(rounds, seed, lambda line: None, classification).schedules,
        "value models": values.schedules,
        **{f"learned, {name}": schedules for name, schedules in unseen.items()},
        "hindsight": best,
    }
    figures = {}
    for name, schedules in policies.items():
        rate, gap = rounds.rate(schedules), rivals.gap(rounds, schedules, best, values.price)
        calls = float(np.mean([bits_of(int(schedule)).count("1") for schedule in schedules]))
        figures[name] = {"rate": round(rate, 5), "gap": round(gap, 5), "calls": round(calls, 4)}
        note(f"{name}: {rate:.4f} tokens a verification's time, gap {gap:.4f}, {calls:.2f} calls a round")
    return figures
