"""Methods against each other on the prompts that both answered: the baseline cancels out."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import combinations

from reports.run_facts import RunFacts
from reports.statistics import bootstrap_interval, geometric_mean, holm, sign_flip_p
from reports.summary import Compared, Comparisons, method_place, timing_label


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """One method against another, over all tasks of one clock and pair."""

    clock: str
    """The rows' clock."""
    timing: str
    """`measured`, or `modelled (<clock>)`."""
    pair: str
    """Name of the model pair."""
    method: str
    """Name of the method; of two, the later one in the configuration."""
    against: str
    """Name of the other method."""
    n: int
    """Prompts that both answered."""
    ratio: float
    """Geometric mean over prompts of decode time per token, the other's over the method's: above 1 is faster."""
    ci_low: float | None
    """Lower end of its 95% bootstrap interval; null below 2 prompts."""
    ci_high: float | None
    """Upper end."""
    p: float | None
    """Raw p-value of a paired sign-flip test; null below 6 prompts."""
    p_holm: float | None
    """The same, Holm-adjusted over all contrasts of this clock and pair."""


def contrast_methods(compared: Comparisons, facts: RunFacts) -> list[Contrast]:
    """Return every pair of methods that share an engine's baseline and a prompt, in the order of the configuration."""
    contrasts: list[Contrast] = []
    for (clock, pair), methods in compared.items():
        names = sorted(filter(methods.get, methods), key=lambda name: method_place(name, facts))
        baselines = {name: _baseline(methods[name]) for name in names}
        own = [
            one
            for earlier, later in combinations((name for name in names if baselines[name] != name), 2)
            if baselines[earlier] == baselines[later]
            and (one := _contrast(clock, pair, (later, methods[later]), (earlier, methods[earlier]))) is not None
        ]
        adjusted = iter(holm([one.p for one in own if one.p is not None]))
        contrasts += [one if one.p is None else replace(one, p_holm=next(adjusted)) for one in own]
    return contrasts


def _baseline(compared: list[Compared]) -> str:
    """Return the method that a method's speedups are over."""
    return compared[0][0].against


def _contrast(
    clock: str, pair: str, method: tuple[str, list[Compared]], against: tuple[str, list[Compared]]
) -> Contrast | None:
    theirs = {pairing.prompt: effect for pairing, effect in against[1]}
    by_task: defaultdict[str, list[float]] = defaultdict(list)
    for pairing, effect in method[1]:
        if pairing.prompt in theirs:
            by_task[pairing.prompt[0]].append(effect.log_speedup - theirs[pairing.prompt].log_speedup)
    logs = [log for of_task in by_task.values() for log in of_task]
    if not logs:
        return None
    low, high = bootstrap_interval(by_task) or (None, None)
    return Contrast(
        clock=clock,
        timing=timing_label(clock),
        pair=pair,
        method=method[0],
        against=against[0],
        n=len(logs),
        ratio=geometric_mean(logs),
        ci_low=low,
        ci_high=high,
        p=sign_flip_p(logs),
        p_holm=None,
    )
