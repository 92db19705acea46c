"""Signals of learned schedulers before a step (TreeGraft, Table 3, and its public code).

A group of ours, look-up's evidence for the root, comes besides the paper's three; `treegraft-plus` uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, log

from methods.core.tree import DraftTree
from methods.drafters.ngram_index import Evidence
from methods.drafters.reselection import reselection_candidates
from methods.latency import Latency
from methods.schedulers.scheduler import DraftState
from methods.settings import Settings

CONTEXT_SIGNALS = ("log_prompt_tokens", "target_ms", "middle_ms", "log_latency_ratio")
TREE_SIGNALS = (
    "depth_before",
    "max_depth_before",
    "leaf_ratio_before",
    "pre_reselect_depth_delta",
    "pre_reselect_cands",
    "collapse_debt",
    "pre_reselect_past_ratio",
    "pre_reselect_overlap",
    "pre_reselect_score",
)
LOOKUP_SIGNALS = ("root_match", "root_share", "root_continuations", "root_log_age")


def history_signals(steps: int) -> tuple[str, ...]:
    """Return the names of the signals of a round's history."""
    return ("step_share", "call_share", *(f"called_{step}" for step in range(1, steps + 1)))


def signal_groups(steps: int) -> dict[str, tuple[str, ...]]:
    """Return the groups of signals by name, in the order of `all_signals`: the paper's three, then look-up's."""
    return {
        "context": CONTEXT_SIGNALS,
        "history": history_signals(steps),
        "tree": TREE_SIGNALS,
        "lookup": LOOKUP_SIGNALS,
    }


def signal_names(steps: int) -> tuple[str, ...]:
    """Return the names of all signals in the order of `all_signals`."""
    return tuple(name for group in signal_groups(steps).values() for name in group)


def all_signals(
    context: Sequence[float], history: Sequence[float], tree: Sequence[float], lookup: Sequence[float]
) -> list[float]:
    """Return a state's signals in the order of their names."""
    return [*context, *history, *tree, *lookup]


def read_context(prompt_tokens: int, latency: Latency) -> list[float]:
    """Return the signals of a prompt and a machine."""
    return [log(1 + prompt_tokens), latency.target_ms, latency.middle_ms, log(latency.target_ms / latency.middle_ms)]


def read_history(calls: Sequence[int], steps: int) -> list[float]:
    """Return the signals of the steps taken so far."""
    return [(len(calls) + 1) / steps, sum(calls) / steps, *calls, *([0] * (steps - len(calls)))]


def read_tree(tree: DraftTree, frontier: Sequence[int], settings: Settings) -> list[float]:
    """Return the signals of the tree as it stands, not rescored; settings say how a middle step would reselect."""
    depths, scores = tree.depths, tree.scores
    candidates = reselection_candidates(tree, frontier, settings.reselect, settings.look_back)
    preview = frontier
    if settings.reselect != "off":  # a stable sort: of equal scores the lower id comes first
        preview = sorted(candidates, key=scores.__getitem__, reverse=True)[: settings.width]
    own = [depths[node] for node in frontier]
    before = sum(own) / len(own) if own else 0.0
    delta = sum(depths[node] for node in preview) / len(preview) - before if preview else 0.0
    layers, today = set(own), set(frontier)
    finite = [scores[node] for node in preview if isfinite(scores[node])]
    count = max(1, len(preview))
    return [
        before,
        float(max(own, default=0)),
        sum(not tree.children[node] for node in frontier) / max(1, len(frontier)),
        delta,
        float(len(candidates)),
        max(0.0, -delta),
        sum(depths[node] not in layers for node in preview) / count,
        sum(node in today for node in preview) / count,
        sum(finite) / len(finite) if finite else 0.0,
    ]


def read_lookup(evidence: Sequence[Evidence]) -> list[float]:
    """Return the root's longest match, its best token's share, the distinct tokens, and the log of that token's age."""
    if not evidence:
        return [0.0] * len(LOOKUP_SIGNALS)
    best = evidence[0]
    return [float(best.match), best.times / best.total, float(len(evidence)), log(best.age)]


class SignalReader:
    """Reads the signals in `names`, in that order."""

    def __init__(self, settings: Settings, names: Sequence[str]) -> None:
        groups = signal_groups(settings.steps)
        order = signal_names(settings.steps)
        self._settings = settings
        self._places = [order.index(name) for name in names]
        self._asks_tree, self._asks_lookup = (bool({*names} & {*groups[group]}) for group in ("tree", "lookup"))
        self._no_tree = [0.0] * len(groups["tree"])
        self._context: list[float] = []

    def begin(self, prompt_tokens: int, latency: Latency) -> None:
        """Start a prompt."""
        self._context = read_context(prompt_tokens, latency)

    def read(self, state: DraftState) -> list[float]:
        """Return the signals of a state."""
        tree = self._no_tree
        if self._asks_tree:
            tree = read_tree(state.tree, state.frontier, self._settings)
        lookup = read_lookup(state.root_evidence() if self._asks_lookup else ())
        every = all_signals(self._context, read_history(state.calls, self._settings.steps), tree, lookup)
        return [every[place] for place in self._places]
