"""A study on two recorded runs: learned schedulers fitted to one, every policy evaluated on the other; modelled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from foundation.errors import UserError
from foundation.progress import Bar
from hardware_profiles.profile import Kind, Profile
from harness.clocks.cost_model import CLOCK_PREFIX
from harness.replay.recorded_run import RecordedRun
from harness.training.distillation import distil_network
from harness.training.fit_scheduler import refuse_eval_questions
from harness.training.policy_evaluation import check_decisions
from harness.training.q_values import FOLDS, fit_values
from harness.training.settings import StudySettings
from harness.training.study.conditions import Timed, profiles_of, timed_conditions
from harness.training.study.evaluation import PolicyResult, evaluate_policies
from harness.training.study.study_file import Study, load_study
from harness.training.trace_collection import first_questions, greedy_answers, traced_spec
from methods.schedulers.artifact import Network
from methods.schedulers.signals import LOOKUP_SIGNALS
from methods.settings import DRAFTING_KEYS
from tasks.known_eval import plain_digest

FEWEST_PROMPTS = 2
"""Of fewer, no interval can be resampled."""


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """Results of every policy under a condition."""

    condition: str
    clock: str
    """The profile's clock, a changed machine under the condition's name."""
    group: str
    """The clock as the study gives it, which conditions along an axis share."""
    place: float | None
    """Its place on the study's axis."""
    pair: str
    """The pair of the latencies."""
    device: str
    kind: Kind
    unknown: list[str]
    """Costs that the profile lacks and charges nothing for."""
    caption: str
    """The cost model in words."""
    target_ms: float
    middle_ms: float
    most_calls: int
    """B0."""
    lines: list[PolicyResult]


@dataclass(frozen=True, slots=True)
class Findings:
    """A whole study."""

    about: str
    clock: str
    """`modelled`: nothing was measured."""
    acceptance_of: str
    """The traced pair."""
    fit_prompts: int
    prompts: int
    tasks: list[str]
    decision_ms: float | None
    axis: str | None
    """Its label."""
    conditions: list[ConditionResult]


def run_study(file: Path, settings: StudySettings, bar: Bar) -> Findings:
    """Fit a scheduler under each condition of a study; evaluate it and the baseline policies under each.

    Args:
        file: the study's YAML file.
        settings: flags of the command.
        bar: shows how far tracing is.

    Raises:
        UserError: unusable input, evaluation questions to fit to, or runs that share questions or differ in pair.
    """
    study = load_study(file)
    if settings.figure is not None:
        check_figure(study, file, settings.figure)
    fit, on = RecordedRun(Path(settings.fit)), RecordedRun(Path(settings.on))
    _check_runs(fit, on)
    _check_drafting(study, file, fit, on)
    _check_questions(study, fit, on)
    profiles = profiles_of(study, str(file), on.pair)
    networks: dict[str, Network] = {}
    fit_prompts = 0
    for name, timed in timed_conditions(study, fit, _traces(settings.fit_traces, fit), profiles, bar):
        fit_prompts = len(np.unique(timed.priced.learned.prompts))
        networks[name] = _learned(timed, f"{file}: conditions.{name}", settings.seed)
    results: dict[str, ConditionResult] = {}
    prompts, tasks = 0, list[str]()
    for name, timed in timed_conditions(study, on, _traces(settings.traces, on), profiles, bar):
        fixed = timed.priced.fixed
        prompts, tasks = len(np.unique(fixed.prompts)), [str(task) for task in np.unique(fixed.tasks)]
        running = {other: networks[other] for other in study.fitted_for(name)}
        lines = evaluate_policies(timed, running, study.schedules, name, settings.seed)
        results[name] = _result(study, name, profiles[name], timed, lines, on.pair.name)
    return Findings(
        about=study.about,
        clock="modelled",
        acceptance_of=on.pair.name,
        fit_prompts=fit_prompts,
        prompts=prompts,
        tasks=tasks,
        decision_ms=study.decision_ms,
        axis=None if study.axis is None else study.axis.label,
        conditions=[results[name] for name in study.conditions],
    )


def check_figure(study: Study, file: Path, figure: str) -> None:
    """Refuse a figure of a study without an axis, or into a file that is no SVG or cannot be written."""
    if study.axis is None:
        raise UserError(f"{file}: axis: missing; a figure needs a number of the machine to be drawn along")
    if Path(figure).suffix != ".svg":
        raise UserError(f"--figure {figure}: figures are SVG; give a name that ends in .svg")
    try:
        with TemporaryFile(dir=Path(figure).parent):
            pass
    except OSError as error:
        raise UserError(f"--figure {figure}: cannot be written ({error.strerror}); give another folder") from error


def _check_runs(fit: RecordedRun, on: RecordedRun) -> None:
    """Refuse runs of different models, or that share questions."""
    refuse_eval_questions(fit)
    if _weights(fit) != _weights(on):
        raise UserError(f"{on.folder}: of other models than {fit.folder}; give two runs of one pair")
    fitted = {plain_digest(fit.question(row.task, row.question_id).turns[0]) for row in fit.rows}
    for row in on.rows:
        if plain_digest(on.question(row.task, row.question_id).turns[0]) in fitted:
            raise UserError(
                f"{on.folder}: {row.task}/{row.question_id} is fitted to in {fit.folder}; judge on other questions"
            )


def _check_drafting(study: Study, file: Path, fit: RecordedRun, on: RecordedRun) -> None:
    """Refuse runs that draft differently, and schedules with other steps than a condition, before hours of tracing."""
    for name, condition in study.conditions.items():
        ours, theirs = (traced_spec(run, condition.settings).settings.model_dump() for run in (fit, on))
        other = sorted(key for key in DRAFTING_KEYS if ours[key] != theirs[key])
        if other:
            difference = f"{other[0]} {theirs[other[0]]}, not {ours[other[0]]} as {fit.folder}"
            raise UserError(f"{on.folder}: drafts with {difference} ({name}); give two runs that draft alike")
        for bits in study.schedules:
            if len(bits) != ours["steps"]:
                raise UserError(f"{file}: schedules: {bits!r} has {len(bits)} bits for {ours['steps']} steps ({name})")


def _check_questions(study: Study, fit: RecordedRun, on: RecordedRun) -> None:
    """Refuse runs with answers to too few questions, before hours of tracing."""
    for run, fewest in ((on, FEWEST_PROMPTS), (fit, FOLDS)):
        if len(first_questions(greedy_answers(run), study.limit)) < fewest:
            raise UserError(f"{run.folder}: answers to {fewest} questions at least are needed; raise limit")


def _weights(recorded: RecordedRun) -> dict[str, str | None]:
    return {role: facts.get("sha256") for role, facts in recorded.manifest.weights.items()}


def _traces(given: str | None, recorded: RecordedRun) -> Path:
    return recorded.folder / "traces" if given is None else Path(given)


def _learned(timed: Timed, origin: str, seed: int) -> Network:
    """Return the scheduler that `treegraft fit` would distil."""
    rounds = timed.priced.learned.without(LOOKUP_SIGNALS)
    check_decisions(rounds, origin)
    values = fit_values(rounds, seed, lambda line: None)
    return distil_network(rounds, values.margins, seed)


def _result(
    study: Study, name: str, profile: Profile, timed: Timed, lines: list[PolicyResult], acceptance_of: str
) -> ConditionResult:
    condition = study.conditions[name]
    return ConditionResult(
        condition=name,
        clock=f"{CLOCK_PREFIX}{profile.name}",
        group=condition.clock,
        place=None if study.axis is None else float(condition.machine[study.axis.key]),
        pair=profile.pair,
        device=profile.device,
        kind=profile.kind,
        unknown=list(profile.unknown),
        caption=profile.caption(acceptance_of),
        target_ms=timed.latency.target_ms,
        middle_ms=timed.latency.middle_ms,
        most_calls=timed.priced.fixed.most_calls,
        lines=lines,
    )
