"""What the learned scheduler sees before a step (TreeGraft, Table 3, and its public code). Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, log

from methods.core.tree import DraftTree
from methods.drafters.reselection import reselection_candidates
from methods.schedulers.scheduler import DraftState, Latency
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


def history_signals(steps: int) -> tuple[str, ...]:
    """Return the names of the signals of a round's history."""
    return ("step_share", "call_share", *(f"called_{step}" for step in range(1, steps + 1)))


def signal_groups(steps: int) -> dict[str, tuple[str, ...]]:
    """Return the three groups of signals by name, in the order of `all_signals`."""
    return {"context": CONTEXT_SIGNALS, "history": history_signals(steps), "tree": TREE_SIGNALS}


def all_signals(context: Sequence[float], history: Sequence[float], tree: Sequence[float]) -> list[float]:
    """Return a state's signals in the order of their names."""
    return [*context, *history, *tree]


def read_context(prompt_tokens: int, latency: Latency) -> list[float]:
    """Return the signals that a prompt and a machine give."""
    return [
        log(1 + prompt_tokens),
        latency.target_ms,
        latency.middle_ms,
        log(latency.target_ms / latency.middle_ms),
    ]


def read_history(calls: Sequence[int], steps: int) -> list[float]:
    """Return the signals that the steps taken give; the next step is the one behind them."""
    return [(len(calls) + 1) / steps, sum(calls) / steps, *calls, *([0] * (steps - len(calls)))]


def read_tree(tree: DraftTree, frontier: Sequence[int], settings: Settings) -> list[float]:
    """Return the signals of the tree as it stands, not rescored.

    Args:
        tree: the draft tree.
        frontier: nodes that the next step drafts from; may be empty.
        settings: say how a middle step would reselect.
    """
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
    shown = max(1, len(preview))
    return [
        before,
        float(max(own, default=0)),
        sum(not tree.children[node] for node in frontier) / max(1, len(frontier)),
        delta,
        float(len(candidates)),
        max(0.0, -delta),
        sum(depths[node] not in layers for node in preview) / shown,
        sum(node in today for node in preview) / shown,
        sum(finite) / len(finite) if finite else 0.0,
    ]


class SignalReader:
    """Reads chosen signals of a state.

    Args:
        settings: the method's parameters.
        names: the signals wanted, in the wanted order.
    """

    def __init__(self, settings: Settings, names: Sequence[str]) -> None:
        groups = signal_groups(settings.steps)
        order = [name for group in groups.values() for name in group]
        self._settings = settings
        self._places = [order.index(name) for name in names]
        self._asks_tree = bool({*names} & {*groups["tree"]})
        self._no_tree = [0.0] * len(groups["tree"])
        self._context: list[float] = []

    def begin(self, prompt_tokens: int, latency: Latency) -> None:
        """Start a prompt."""
        self._context = read_context(prompt_tokens, latency)

    def read(self, state: DraftState) -> list[float]:
        """Return the wanted signals of a state."""
        tree = self._no_tree
        if self._asks_tree:
            tree = read_tree(state.tree, state.frontier, self._settings)
        every = all_signals(self._context, read_history(state.calls, self._settings.steps), tree)
        return [every[place] for place in self._places]
