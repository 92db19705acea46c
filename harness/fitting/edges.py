"""`treegraft fit --method treegraft-calibrated`: drafts along recorded text, learns which edges are accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hardware_profiles.profile import Profile
from harness.errors import UserError
from harness.fitting.collect import greedy_answers
from harness.fitting.fit import check_questions, opened, out_folder, refuse_eval_questions
from harness.fitting.judging import Note
from harness.fitting.settings import FitSettings
from harness.flags import Bar
from harness.provenance import FITTERS, versions
from harness.recorded import RecordedRun
from harness.results import Row
from harness.retiming import CLOCK_PREFIX, decode_spans
from methods.calibrated import CalibratedGrafting
from methods.catalog import MethodSpec, resolve
from methods.drafters.edge_model import EdgeModel, Visit
from methods.schedulers.artifact import EDGES_FILE
from methods.schedulers.edge_artifact import EDGE_KEYS, CostTable, EdgeArtifact, write_edges
from methods.value_system.edges import PRIOR, calibration, fit_edges, fit_unseen, unfitted
from methods.value_system.traces import traced_places
from methods.value_system.values import FOLDS

METHOD = "treegraft-calibrated"
WORTHS = (0.0, 0.6, 0.8, 1.0, 1.2)
"""What a found token may count, tried with the last fit; at 0 nobody is called."""
REFITS = 2
_EXPECTED = 1.5  # tokens a unit of time, before anything was reached
_SIZES = range(1, 65)
_CONTEXTS = (32, 64, 128, 256, 512, 1024, 2048)


@dataclass(frozen=True)
class Work:
    """What is drafted along, and what things cost.

    Attributes:
        recorded: a run.
        answers: its baseline's.
        profile: the machine.
    """

    recorded: RecordedRun
    answers: Sequence[Row]
    profile: Profile

    def verification_ms(self, tokens: int, context: int) -> float:
        """Return what a verification takes, with the work beside its forward."""
        costs = self.profile.costs
        return self.profile.forward_ms("target", tokens, context) + costs.verify_ms + costs.other_ms

    def call_ms(self, tokens: int, context: int) -> float:
        """Return what a call of the middle drafter takes, with the work beside its forward."""
        return self.profile.forward_ms("middle", tokens, context) + self.profile.costs.middle_call_ms

    @cached_property
    def costs(self) -> list[CostTable]:
        """What forwards cost, for contexts of several lengths."""
        return [self._costs_at(context) for context in _CONTEXTS]

    def _costs_at(self, context: int) -> CostTable:
        unit = self.verification_ms(1, context)
        return CostTable(
            context=context,
            verifications=[self.verification_ms(size, context) / unit for size in _SIZES],
            calls=[self.call_ms(size, context) / unit for size in _SIZES],
        )

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
        """Return the method with the pair's and the run's parameters, whatever was fitted for it before.

        Args:
            options: of the method.
        """
        flags = {"options": options, "artifact": None}
        recorded = self.recorded
        return resolve(
            METHOD, definitions={}, pair=recorded.pair.defaults, config=recorded.config.drafting, flags=flags
        )


@dataclass(frozen=True, slots=True)
class Pass:
    """What drafting along all answers gave.

    Attributes:
        visits: by answer.
        rate: committed tokens a unit of time.
        calls: middle calls a round.
        sent: draft nodes sent a round.
    """

    visits: list[list[Visit]]
    rate: float
    calls: float
    sent: float


@dataclass(frozen=True, slots=True)
class Trial:
    """Something that was tried.

    Attributes:
        believed: what drafting believed.
        seen: the visits that its edge model was fitted to, by answer.
        found: what drafting along all answers gave.
    """

    believed: EdgeArtifact
    seen: list[list[Visit]]
    found: Pass


def fit_calibrated(run: Path, settings: FitSettings, bar: Bar, note: Note) -> EdgeArtifact:
    """Fit the edge model and what goes with it to a run on questions for fitting.

    The first pass drafts with what is believed beforehand and calls the middle drafter once a round, the next ones with
    what was learnt from those before, so that the model meets the nodes at which it calls; it is fitted to the nodes of
    all of them that the target's text passed through. Of all that was tried, the fastest on these questions is kept.

    Args:
        run: the folder of a run; drafting goes along the baseline's greedy answers.
        settings: what is asked.
        bar: shows how far it is.
        note: told what was found.

    Returns:
        The artifact, as it stands in the folder.

    Raises:
        UserError: unusable input, or a run that holds questions to be measured on.
    """
    if settings.traces is not None:
        raise UserError(f"--traces: {METHOD} keeps none; leave it out")
    if settings.decision_ms is not None:
        raise UserError(f"--decision-ms: {METHOD} decides while it drafts along; leave it out")
    profile, _, recorded = opened(run, settings.clock)
    out = out_folder(settings, (EDGES_FILE,))
    refuse_eval_questions(recorded)
    work = Work(recorded, greedy_answers(recorded), profile)
    check_questions(work.answers, run)
    if not any(traced_places(row.committed or 0, recorded.config.max_new_tokens) for row in work.answers):
        raise UserError(f"{run}: no answer is long enough to draft anything; raise --max-new-tokens of the run")
    note(f"{profile.caption(recorded.pair.name)}.")
    first = drafted_along(work, work.artifact(PRIOR, _EXPECTED, 1.0), {"when": "once"}, bar)
    note(f"one call a round, before fitting: {_told(first)}")
    visits, rate = first.visits, first.rate
    tried: dict[str, Trial] = {}

    def try_out(edges: EdgeModel, worth: float, name: str) -> Pass:
        believed = work.artifact(edges, rate, worth)
        tried[name] = Trial(believed, visits, drafted_along(work, believed, {}, bar))
        note(f"calls by expected gain, {name}: {_told(tried[name].found)}")
        return tried[name].found

    for times in range(1, REFITS + 1):
        again = try_out(fit_edges(_flat(visits)), 1.0, f"fit {times}")
        visits = [one + other for one, other in zip(visits, again.visits, strict=True)]
        rate = max(rate, again.rate)
    edges = fit_edges(_flat(visits))
    for worth in WORTHS:
        try_out(edges, worth, f"fit {REFITS + 1}, a found token counts {worth}")
    chosen = max(tried, key=lambda name: tried[name].found.rate)
    best = tried[chosen]
    kept = unfitted(best.believed.edges)
    if kept:
        note(f"too few visits to fit {', '.join(kept)}: there what was believed beforehand stays")
    rates = {name: round(one.found.rate, 5) for name, one in tried.items()}
    card = {**_card(work, settings, best.seen), "chosen": chosen, "rates": rates, "unfitted": kept}
    artifact = best.believed.model_copy(update={"rate": best.found.rate, "card": card})
    write_edges(out, artifact)
    return artifact


def _flat(visits: Sequence[Sequence[Visit]]) -> list[Visit]:
    return [visit for own in visits for visit in own]


def drafted_along(work: Work, artifact: EdgeArtifact, options: dict[str, Any], bar: Bar) -> Pass:
    """Draft along recorded answers with an artifact.

    Args:
        work: what is drafted along.
        artifact: what is believed.
        options: of the method.
        bar: shows progress.
    """
    recorded, spec = work.recorded, work.spec(options)
    method = CalibratedGrafting(recorded.drafting_models(spec), spec.settings, artifact)
    visits: list[list[Visit]] = []
    time = tokens = rounds = calls = sent = 0.0
    with bar("answers drafted along", len(work.answers)) as advance:
        for row in work.answers:
            method.visits = []
            _, drafted = method.redraft(recorded.prompt(row), row.token_ids, recorded.config.max_new_tokens)
            records = [record for _, record in drafted]
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
    return {
        "data": {name: task.sha256 for name, task in manifest.tasks.items()},
        "weights": {role: facts["sha256"] for role, facts in manifest.weights.items()},
        "answers": len(work.answers),
        "visits": sum(map(len, visits)),
        "recipe": {"seed": settings.seed, "folds": FOLDS, "refits": REFITS},
        "calibration": calibration(
            fit_unseen(visits, [(row.task, row.question_id) for row in work.answers], settings.seed)
        ),
        "versions": versions(FITTERS),
    }


def _told(found: Pass) -> str:
    return f"{found.rate:.4f} tokens a verification's time, {found.calls:.2f} calls and {found.sent:.1f} nodes a round"
