"""`treegraft fit --method treegraft-calibrated`: drafts along recorded text and fits which edges are accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from foundation.progress import Bar
from hardware_profiles.profile import Profile
from harness.clocks.cost_model import CLOCK_PREFIX, decode_spans
from harness.records.provenance import FITTERS, versions
from harness.records.schema import Row
from harness.replay.recorded_run import RecordedRun
from harness.training.edge_regression import PRIOR, calibration, fit_edges, fit_unseen, unfitted
from harness.training.fit_scheduler import check_questions, open_run, out_folder, refuse_eval_questions
from harness.training.policy_evaluation import Note
from harness.training.q_values import FOLDS
from harness.training.settings import FitSettings
from harness.training.trace_collection import greedy_answers
from harness.training.traces import traced_places
from methods.artifacts.files import EDGES_FILE
from methods.calibrated.artifact import EDGE_KEYS, CostTable, EdgeArtifact, write_edges
from methods.calibrated.edge_model import EdgeModel, Visit
from methods.calibrated.method import CalibratedGrafting
from methods.catalog import MethodSpec, resolve
from methods.core.stopwatch import Stopwatch

METHOD = "treegraft-calibrated"
WORTHS = (0.0, 0.6, 0.8, 1.0, 1.2)
"""Values of an accepted token tried with the last fit; at 0 the middle drafter is never called."""
REFITS = 2
_EXPECTED = 1.5  # throughput estimate of the first pass, tokens a verification's time
_SIZES = range(1, 65)
_CONTEXTS = (32, 64, 128, 256, 512, 1024, 2048)


@dataclass(frozen=True)
class Work:
    """A recorded run with the cost model of a machine.

    Attributes:
        recorded: a run.
        answers: its baseline's.
        profile: the machine's.
    """

    recorded: RecordedRun
    answers: Sequence[Row]
    profile: Profile

    def verification_ms(self, tokens: int, context: int) -> float:
        """Return the time of a verification, with the work around its forward."""
        costs = self.profile.costs
        return self.profile.forward_ms("target", tokens, context) + costs.verify_ms + costs.other_ms

    def call_ms(self, tokens: int, context: int) -> float:
        """Return the time of a middle call, with the work around its forward."""
        return self.profile.forward_ms("middle", tokens, context) + self.profile.costs.middle_call_ms

    @cached_property
    def costs(self) -> list[CostTable]:
        """Costs of forwards, for contexts of several lengths."""
        tables = []
        for context in _CONTEXTS:
            unit = self.verification_ms(1, context)
            verifications = [self.verification_ms(size, context) / unit for size in _SIZES]
            calls = [self.call_ms(size, context) / unit for size in _SIZES]
            tables.append(CostTable(context=context, verifications=verifications, calls=calls))
        return tables

    def artifact(self, edges: EdgeModel, rate: float, worth: float) -> EdgeArtifact:
        """Return an artifact without a card."""
        return EdgeArtifact(
            pair=self.recorded.pair.name,
            clock=f"{CLOCK_PREFIX}{self.profile.name}",
            drafting=self.spec({}).settings.model_dump(mode="json", include={*EDGE_KEYS}),
            edges=edges,
            costs=self.costs,
            rate=rate,
            worth=worth,
            card={},
        )

    def spec(self, options: dict[str, Any]) -> MethodSpec:
        """Return the method with given options and the pair's and run's parameters, without any artifact."""
        flags = {"options": options, "artifact": None}
        recorded = self.recorded
        return resolve(METHOD, pair=recorded.pair.defaults, config=recorded.config.drafting, flags=flags)


@dataclass(frozen=True, slots=True)
class Pass:
    """The result of drafting along all answers.

    Attributes:
        visits: by answer.
        rate: committed tokens a verification's time.
        calls: middle calls a round.
        sent: draft nodes sent a round.
    """

    visits: list[list[Visit]]
    rate: float
    calls: float
    sent: float


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate artifact and its result.

    Attributes:
        artifact: the candidate.
        fitted_to: the visits that its edge model was fitted to, by answer.
        result: of drafting along all answers with it.
    """

    artifact: EdgeArtifact
    fitted_to: list[list[Visit]]
    result: Pass


def fit_calibrated(run: Path, settings: FitSettings, bar: Bar, note: Note) -> EdgeArtifact:
    """Fit the edge model and its companions to a run on the dev split; return the artifact, as written to the folder.

    The first pass drafts with the prior and calls the middle drafter once a round, the next ones with the models fitted
    so far, so that the model meets the nodes at which it calls; it is fitted to the nodes of all passes that the
    target's text passed through. The fastest trial on these questions is kept.

    Args:
        run: the folder of a run, whose baseline's greedy answers are drafted along.
        settings: flags of the command.
        bar: shows progress.
        note: prints a line.

    Raises:
        UserError: unusable input, or a run that holds evaluation questions.
    """
    if settings.traces is not None:
        raise UserError(f"--traces: {METHOD} keeps none; leave it out")
    if settings.decision_ms is not None:
        raise UserError(f"--decision-ms: {METHOD} decides while it drafts along; leave it out")
    profile, _, recorded = open_run(run, settings.clock)
    out = out_folder(settings, (EDGES_FILE,))
    refuse_eval_questions(recorded)
    work = Work(recorded, greedy_answers(recorded), profile)
    check_questions(work.answers, run)
    if not any(traced_places(row.committed or 0, recorded.config.max_new_tokens) for row in work.answers):
        raise UserError(f"{run}: no answer is long enough to draft anything; raise --max-new-tokens of the run")
    note(f"{profile.caption(recorded.pair.name)}.")
    first = drafted_along(work, work.artifact(PRIOR, _EXPECTED, 1.0), {"when": "once"}, bar)
    note(f"one call a round, before fitting: {_summary(first)}")
    visits, rate = first.visits, first.rate
    tried: dict[str, Trial] = {}

    def try_out(edges: EdgeModel, worth: float, name: str) -> Pass:
        candidate = work.artifact(edges, rate, worth)
        tried[name] = Trial(candidate, visits, drafted_along(work, candidate, {}, bar))
        note(f"calls by expected gain, {name}: {_summary(tried[name].result)}")
        return tried[name].result

    for times in range(1, REFITS + 1):
        again = try_out(fit_edges(_flat(visits)), 1.0, f"fit {times}")
        visits = [one + other for one, other in zip(visits, again.visits, strict=True)]
        rate = max(rate, again.rate)
    edges = fit_edges(_flat(visits))
    for worth in WORTHS:
        try_out(edges, worth, f"fit {REFITS + 1}, a found token counts {worth}")
    chosen = max(tried, key=lambda name: tried[name].result.rate)
    best = tried[chosen]
    kept = unfitted(best.artifact.edges)
    if kept:
        note(f"too few visits to fit {', '.join(kept)}: there the prior stays")
    rates = {name: round(one.result.rate, 5) for name, one in tried.items()}
    card = {**_card(work, settings, best.fitted_to), "chosen": chosen, "rates": rates, "unfitted": kept}
    artifact = best.artifact.model_copy(update={"rate": best.result.rate, "card": card})
    write_edges(out, artifact)
    return artifact


def _flat(visits: Sequence[Sequence[Visit]]) -> list[Visit]:
    return [visit for own in visits for visit in own]


class VisitRecorder(CalibratedGrafting):
    """Calibrated grafting that records the evidence at each accepted node.

    Attributes:
        visits: of the current answer.
    """

    visits: list[Visit]

    def advance(self, new: Sequence[int], accepted: Sequence[int], watch: Stopwatch) -> None:
        """Record the evidence of accepted nodes with look-ups, then pass on the committed tokens."""
        tree, evaluated = self.round.grown.tree, self.round.evaluated
        for node, token in zip(accepted, new, strict=False):
            lookup = self.round.grown.found.get(node)
            if lookup is not None:
                visit = Visit(tree.depths[node], lookup.evidence, evaluated.get(node), self.recent, token)
                self.visits.append(visit)
        super().advance(new, accepted, watch)


def drafted_along(work: Work, artifact: EdgeArtifact, options: dict[str, Any], bar: Bar) -> Pass:
    """Draft along recorded answers with an artifact and options of the method."""
    recorded, spec = work.recorded, work.spec(options)
    method = VisitRecorder(recorded.drafting_models(spec), spec.settings, artifact)
    visits: list[list[Visit]] = []
    time = tokens = rounds = calls = sent = 0.0
    with bar("answers drafted along", len(work.answers)) as advance:
        for row in work.answers:
            method.visits = []
            _, drafted = method.redraft(recorded.prompt(row), row.token_ids, recorded.config.max_new_tokens)
            records = [one.record for one in drafted]
            ms = 1e3 * decode_spans(records, work.profile, schedules=True).whole_s
            time += ms / work.verification_ms(1, row.prompt_tokens or 1)
            tokens += len(row.token_ids)
            rounds += len(records)
            calls += sum(record.calls for record in records)
            sent += sum(record.drafted for record in records)
            visits.append(method.visits)
            advance(1, row.task)
    return Pass(visits, tokens / time, calls / rounds, sent / rounds)


def _card(work: Work, settings: FitSettings, visits: list[list[Visit]]) -> dict[str, Any]:
    manifest = work.recorded.manifest
    questions = [(row.task, row.question_id) for row in work.answers]
    return {
        "data": {name: task.sha256 for name, task in manifest.tasks.items()},
        "weights": {role: facts["sha256"] for role, facts in manifest.weights.items()},
        "answers": len(work.answers),
        "visits": sum(map(len, visits)),
        "recipe": {"seed": settings.seed, "folds": FOLDS, "refits": REFITS},
        "calibration": calibration(fit_unseen(visits, questions, settings.seed)),
        "versions": versions(FITTERS),
    }


def _summary(one: Pass) -> str:
    return f"{one.rate:.4f} tokens a verification's time, {one.calls:.2f} calls and {one.sent:.1f} nodes a round"
