"""Measures a pair on this machine: latency curves of its models, and the costs around forwards."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from scipy.optimize import nnls

from foundation.errors import UserError
from foundation.gc_control import no_garbage_collection
from foundation.progress import Bar
from foundation.roles import ProfiledRole
from hardware_profiles.curve import Curve
from hardware_profiles.profile import Costs, CurveError, Profile
from hardware_profiles.watch import Watch
from harness.models.gpus import gpu_names, gpu_uuids
from harness.models.loading import LoadedPair
from harness.profiling.texts import ANSWER, Text
from harness.records.provenance import device_line, machine, versions
from methods.catalog import load_family, resolve
from methods.core.generation import Generation
from methods.core.model import TreeModel
from methods.core.sampling import DecodingParams
from methods.core.tree import DraftTree
from methods.drafters.neural import NeuralDrafter, common_vocabulary

SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
CONTEXTS = (64, 256, 768, 1536)
HELD_OUT_SIZES = (3, 6, 10, 20, 40)
HELD_OUT_CONTEXTS = (160, 500)
_WIDTH = 10  # frontier of a middle step
_METHODS = ("autoregressive", "all-small", "all-mid", "treegraft-fixed")


@dataclass(frozen=True, slots=True)
class Point:
    """The size of a timed forward."""

    role: ProfiledRole
    tokens: int
    context: int


class Profiler:
    """Times a loaded pair.

    Args:
        loaded: the pair.
        texts: for measuring costs around forwards; the first one also warms up.
        seed: of the order of measurements.
        repeats: forwards a point; medians are kept.
    """

    def __init__(self, loaded: LoadedPair, texts: Sequence[Text], *, seed: int = 0, repeats: int) -> None:
        self._loaded = loaded
        self._texts = texts
        self._random = random.Random(seed)
        self._repeats = repeats
        target, middle = loaded.models.target, loaded.models.middle
        self._models: dict[ProfiledRole, TreeModel] = {"target": target, **({"middle": middle} if middle else {})}
        vocabulary = common_vocabulary(target, middle) if middle else 0
        self._drafter = NeuralDrafter(middle, width=_WIDTH, vocabulary=vocabulary) if middle else None

    def measure(self, name: str, bar: Bar) -> Profile:
        """Return the profile `name` of this machine."""
        gpus = gpu_uuids(self._loaded.models)
        facts = machine(gpus)
        watch = Watch(gpus)
        watch.start()
        forwards: defaultdict[Point, list[float]] = defaultdict(list)
        prefills: defaultdict[Point, list[float]] = defaultdict(list)
        longest = min(model.max_positions for model in self._models.values())
        contexts = [context for context in CONTEXTS if context + max(SIZES) <= longest]
        if not contexts:
            needed = min(CONTEXTS) + max(SIZES)
            raise UserError(
                f"--pair {self._loaded.pair.name}: holds {longest} tokens, and a profile needs room for {needed}; "
                "give a pair with a longer context"
            )
        rounds: list[tuple[int, Sequence[int]]] = [(context, SIZES) for context in contexts]
        rounds += [(context, HELD_OUT_SIZES) for context in HELD_OUT_CONTEXTS if context < contexts[-1]]
        thrown_away = defaultdict[Point, list[float]](list), defaultdict[Point, list[float]](list)  # of the warm-up
        with bar("repeats", self._repeats + 1) as advance, no_garbage_collection():
            for repeat in range(self._repeats + 1):
                self._random.shuffle(rounds)
                for context, sizes in rounds:
                    self._one_context(context, sizes, *((forwards, prefills) if repeat else thrown_away))
                advance(1, "")
        curves: dict[ProfiledRole, Curve] = {role: _curve(forwards, role, contexts, SIZES) for role in self._models}
        engines = self._loaded.engine_details
        profile = Profile(
            name=name,
            kind="measured",
            device=device_line(facts, gpu_names(self._loaded.models)),
            pair=self._loaded.pair.name,
            dtype=str(self._loaded.models.target.dtype).removeprefix("torch."),
            engine=self._loaded.models.target.engine.name,
            sources={"all": "treegraft profile, medians of forwards in random order"},
            forwards=dict(curves.items()),
            prefill={role: _prefill_curve(prefills, role) for role in self._models},
            errors={role: _error(curves[role], forwards, role) for role in self._models},
            costs=Costs(**dict.fromkeys(Costs.model_fields, 0.0)),
            measured_with={"machine": facts, "versions": versions(), "repeats": self._repeats, "engines": engines},
        )
        costs = self._costs(profile, bar)
        reading = watch.stop()
        watched = {**profile.measured_with, **reading.telemetry, "marks": reading.marks}
        return profile.model_copy(update={"costs": costs, "measured_with": watched})

    def _one_context(
        self,
        context: int,
        sizes: Sequence[int],
        forwards: defaultdict[Point, list[float]],
        prefills: defaultdict[Point, list[float]],
    ) -> None:
        tokens = [self._random.randrange(self._vocabulary) for _ in range(context + max(sizes))]
        for role, model in self._models.items():
            model.begin(context + max(sizes))
            prefills[Point(role, context, 0)].append(_timed(model, partial(model.prefill, tokens[:context])))
        points = [Point(role, size, context) for role in self._models for size in sizes]
        self._random.shuffle(points)
        for point in points:
            forwards[point].append(self._forward_ms(point, tokens))

    @property
    def _vocabulary(self) -> int:
        return min(model.vocab_size for model in self._models.values())

    def _forward_ms(self, point: Point, tokens: Sequence[int]) -> float:
        model = self._models[point.role]
        drafted = tokens[point.context : point.context + point.tokens]
        if point.role == "target":
            visible = np.tri(point.tokens, dtype=np.bool_)

            def work() -> None:
                model.evaluate(drafted, range(point.tokens), visible).argmax(dim=-1).tolist()
        else:
            assert self._drafter is not None
            drafter, tree = self._drafter, _chain(drafted)
            drafter.begin_round([*tokens[: point.context], drafted[0]])

            def work() -> None:
                drafter.evaluate(tree, range(point.tokens))
                drafter.nodes.best(range(min(_WIDTH, point.tokens)), _WIDTH)

        taken = _timed(model, work)
        model.commit([])
        return taken

    def _costs(self, profile: Profile, bar: Bar) -> Costs:
        """Return the costs of answers around their forwards."""
        names = [name for name in _METHODS if self._drafter or name not in ("all-mid", "treegraft-fixed")]
        answers: list[Generation] = []
        with bar("answers", len(names) * (len(self._texts) + 1)) as advance, no_garbage_collection():
            for name in names:
                spec = resolve(name, pair=self._loaded.pair.defaults)
                method = load_family(spec.family)(self._loaded.models, spec.settings)
                for place, text in enumerate([self._texts[0], *self._texts]):  # the first one warms up
                    params = DecodingParams(ANSWER, eos_ids=self._loaded.eos_ids, reference=text.answer)
                    answer = method.generate(text.prompt, params)
                    answers += [answer] if place else []
                    advance(1, name)
        return costs_of(answers, profile)


def costs_of(answers: Sequence[Generation], profile: Profile) -> Costs:
    """Return the costs of answers around their forwards, given a profile's curves.

    Args:
        answers: of our own methods, timed by phase.
        profile: its own costs are not read.
    """
    small = [(_small_work(a), a.spans.small_s) for a in answers if a.spans and _small_work(a)[0]]
    step, node, commit = nnls(np.array([work for work, _ in small], dtype=float), [1e3 * s for _, s in small])[0]
    return Costs(
        small_step_ms=round(step, 5),
        small_node_ms=round(node, 5),
        small_commit_ms=round(commit, 5),
        middle_call_ms=_beside(answers, profile, "middle"),
        scheduler_ms=_each((a.spans.scheduler_s, _decisions(a)) for a in answers if a.spans),
        verify_ms=_beside(answers, profile, "target"),
        other_ms=_each((a.spans.other_s, len(a.rounds or [])) for a in answers if a.spans),
    )


def _small_work(answer: Generation) -> tuple[int, int, int]:
    """Return look-up steps, the nodes of their frontiers, and the rounds with any step."""
    steps = [[forward.tokens for forward in one.forwards if forward.role == "small"] for one in answer.rounds or []]
    return sum(map(len, steps)), sum(map(sum, steps)), sum(map(bool, steps))


def _decisions(answer: Generation) -> int:
    return sum(len(one.schedule or []) for one in answer.rounds or [])


def _beside(answers: Iterable[Generation], profile: Profile, role: ProfiledRole) -> float:
    """Return the median over answers of the milliseconds around a role's forwards, for each time it was called."""
    costs = []
    for answer in answers:
        rounds = answer.rounds or []
        of_role = [forward for one in rounds for forward in one.forwards if forward.role == role]
        times = len(rounds) if role == "target" else sum(one.calls for one in rounds)
        if answer.spans is None or not times:
            continue
        span = answer.spans.verify_s if role == "target" else answer.spans.middle_s
        forwards = sum(profile.forward_ms(role, forward.tokens, forward.context) for forward in of_role)
        costs.append((1e3 * span - forwards) / times)
    return round(max(0.0, median(costs)), 5) if costs else 0.0


def _each(spent: Iterable[tuple[float, int]]) -> float:
    costs = [1e3 * seconds / times for seconds, times in spent if times]
    return round(median(costs), 5) if costs else 0.0


def _chain(tokens: Sequence[int]) -> DraftTree:
    tree = DraftTree(tokens[0])
    tree.insert_path(0, list(tokens[1:]), len(tokens))
    return tree


def _timed(model: TreeModel, work: Callable[[], Any]) -> float:
    """Return the milliseconds that work on a model's device takes."""
    model.synchronise()
    start = time.perf_counter()
    work()
    model.synchronise()
    return 1e3 * (time.perf_counter() - start)


def _curve(timed: dict[Point, list[float]], role: ProfiledRole, contexts: Sequence[int], sizes: Sequence[int]) -> Curve:
    rows = [[round(median(timed[Point(role, size, context)]), 4) for size in sizes] for context in contexts]
    return Curve(tokens=list(sizes), contexts=list(contexts), ms=rows)


def _prefill_curve(timed: dict[Point, list[float]], role: ProfiledRole) -> Curve:
    sizes = sorted({point.tokens for point in timed if point.role == role})
    row = [round(median(timed[Point(role, size, 0)]), 4) for size in sizes]
    return Curve(tokens=sizes, contexts=[0], ms=[row])


def _error(curve: Curve, timed: dict[Point, list[float]], role: ProfiledRole) -> CurveError:
    """Compare a curve with the points measured off its grid."""
    beside = [point for point in timed if point.role == role and point.context not in curve.contexts]
    off = [abs(curve.at(point.tokens, point.context) / median(timed[point]) - 1) * 100 for point in beside]
    if not off:
        return CurveError(points=0, median_pct=0, worst_pct=0)
    return CurveError(points=len(off), median_pct=round(median(off), 2), worst_pct=round(max(off), 2))
