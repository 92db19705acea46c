"""Calibrated grafting (ours): both drafters' evidence on one scale, trees sized by the machine's costs.

Close to what TreeSpark does for one block drafter (calibrated edges, survival, load-adaptive size).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, log

from foundation.errors import UserError
from methods.calibrated.artifact import CostTable, EdgeArtifact, load_edges
from methods.calibrated.edge_model import Recent
from methods.calibrated.facts import FACTS
from methods.calibrated.options import CalibratedOptions
from methods.calibrated.survival_tree import SurvivalTree
from methods.core.generation import Forward
from methods.core.stopwatch import Stopwatch
from methods.core.tree import DraftTree
from methods.drafters.drafter import Drafter
from methods.drafters.neural import NeuralDrafter, common_vocabulary
from methods.drafters.ngram_index import NgramIndex
from methods.method import Models, register_method
from methods.settings import Settings
from methods.tree_method import TreeMethod


@register_method("calibrated")
class CalibratedGrafting(TreeMethod):
    """Grows a tree by survival, and calls the middle drafter while the expected gain outweighs its cost.

    Without an `artifact` it loads the settings'. Raises UserError if that or the middle drafter is missing, or options
    are invalid.

    Attributes:
        drafted: the last round's tree before it was cut.
        round: the state of the current round.
        recent: recent top-1 hit rates of both drafters in this answer.
    """

    facts = FACTS["calibrated"]

    def __init__(self, models: Models, settings: Settings, artifact: EdgeArtifact | None = None) -> None:
        super().__init__(models, settings)
        self._options = settings.options_as(CalibratedOptions, "treegraft-calibrated")
        self._artifact = artifact or load_edges(settings)
        if models.middle is None:
            raise UserError(models.no_middle)
        vocabulary = common_vocabulary(models.target, models.middle)
        self._middle = NeuralDrafter(models.middle, width=settings.width, vocabulary=vocabulary)
        self._index: NgramIndex  # per prompt, set by `begin`, like the next three
        self._costs: CostTable
        self.recent: Recent
        self._throughput: ThroughputEstimate
        self.round: CalibratedRound  # per round, set by `draft`
        self.drafted = DraftTree(0)

    @property
    def drafters(self) -> Sequence[Drafter]:
        """The middle drafter; look-up belongs to the tree."""
        return (self._middle,)

    @property
    def round_rows(self) -> int:
        """KV rows of the largest tree."""
        return self._most_held

    @property
    def max_draft_tokens(self) -> int:
        """Most draft nodes that a round sends to the target, root not counted."""
        return self._options.most if self._options.size == "machine" else self.settings.budget

    def begin(self, context: Sequence[int], capacity: int) -> list[Forward]:
        """Prefill target and middle, index the prompt."""
        forwards = super().begin(context, capacity)
        self._index = NgramIndex(len(self._artifact.edges.copied))
        self._index.extend(context)
        self._costs = self._artifact.costs_at(len(context))
        self.recent, self._throughput = Recent(), ThroughputEstimate(self._artifact.rate)
        return forwards

    def draft(self, context: Sequence[int], remaining: int, watch: Stopwatch, forwards: list[Forward]) -> DraftTree:
        """Return the tree of all nodes that are worth their cost."""
        costs, rate = self._costs, self._throughput.rate
        deepest = min(remaining - 1, self.models.target.max_positions - len(context))
        sized = self._options.size == "machine"
        with watch.span("small"):
            grown = SurvivalTree(
                context,
                self._index,
                self._artifact.edges,
                self.recent,
                floor=log(rate * costs.least_node) if sized else -inf,
                sent=self.max_draft_tokens,
                most=self._most_held,
                deepest=deepest,
                width=self.settings.width,
            )
            if deepest > 0:
                grown.grow()
        self._middle.begin_round(context)
        self.round = CalibratedRound(grown)
        self._small_forward(grown, context, forwards)
        while nodes := self._worth_calling(grown, watch):
            self._call(grown, nodes, context, watch, forwards)
        self.drafted = grown.tree
        sent = self._sent(grown, rate)
        self._throughput.spend(costs.verification(len(sent)))
        return sent

    def advance(self, new: Sequence[int], accepted: Sequence[int], watch: Stopwatch) -> None:
        """Extend the index, keep the middle's KV rows of the accepted path, update hit rates and throughput."""
        with watch.span("small"):
            self._index.extend(new)
            for node, token in zip(accepted, new, strict=False):
                self.recent = self.recent.after(**self.round.hits(node, token))
            self._throughput.commit(len(new))
        super().advance(new, accepted, watch)

    def schedule(self) -> list[int] | None:
        """Return the round's steps: 0 for look-up, 1 for a middle call."""
        return self.round.steps

    @property
    def _most_held(self) -> int:
        return 4 * self.max_draft_tokens + 1

    def _worth_calling(self, grown: SurvivalTree, watch: Stopwatch) -> list[int]:
        """Return the nodes to evaluate in one call, parents first; none if no call is worth its cost."""
        middle, done = self._middle, self.round
        if done.calls == self.settings.steps:
            return []
        with watch.span("scheduler"):
            if self._options.when == "once":
                return [0] if not done.calls and grown.found and middle.room >= 0 else []
            unseen = 0 if done.calls else middle.nodes.unseen
            price, worth, gained = self._throughput.rate, self._artifact.worth, 0.0
            chosen: set[int] = set()
            best: tuple[float, set[int]] = (0.0, set())
            gains = grown.calls_for(done.evaluated.keys(), middle.room)[: self.settings.width]
            if worth * sum(gain for gain, _ in gains) <= price * self._costs.least_call:
                return []
            for gain, node in gains:
                chosen |= {*grown.tree.path(node)} - done.evaluated.keys()
                gained += gain
                value = worth * gained - price * self._costs.call(unseen + len(chosen))
                if value > best[0]:
                    best = value, set(chosen)
            return sorted(best[1])

    def _call(
        self, grown: SurvivalTree, nodes: list[int], context: Sequence[int], watch: Stopwatch, forwards: list[Forward]
    ) -> None:
        done = self.round
        with watch.span("middle"):
            seen = self._middle.seen
            evaluated = self._middle.evaluate(grown.tree, nodes)
            for node, proposals in zip(nodes, self._proposals(grown, nodes), strict=True):
                done.evaluated[node] = proposals
                grown.fuse(node, proposals, self._options.fusion)
            grown.settle()
        forwards.append(Forward("middle", done.take(1), evaluated, seen))
        self._throughput.spend(self._costs.call(evaluated))
        with watch.span("small"):
            grown.grow()
        self._small_forward(grown, context, forwards)

    def _proposals(self, grown: SurvivalTree, nodes: list[int]) -> list[list[tuple[int, float]]]:
        """Return, per evaluated node, the middle's best tokens and all that look-up found, with the middle's scores."""
        proposals = self._middle.nodes.best(nodes, self.settings.width)
        others = [
            (place, token)
            for place, node in enumerate(nodes)
            for token in grown.found[node].logits.keys() - {token for token, _ in proposals[place]}
        ]
        others.sort()
        scores = self._middle.nodes.log_probabilities([nodes[place] for place, _ in others], [one for _, one in others])
        for (place, token), score in zip(others, scores, strict=True):
            proposals[place].append((token, score))
        return proposals

    def _small_forward(self, grown: SurvivalTree, context: Sequence[int], forwards: list[Forward]) -> None:
        if grown.looked_up:
            forwards.append(Forward("small", self.round.take(0), grown.looked_up, len(context)))
            grown.looked_up = 0

    def _sent(self, grown: SurvivalTree, rate: float) -> DraftTree:
        """Return the tree of the likeliest nodes, as many as are worth their verification cost."""
        order = grown.by_survival()[: self.max_draft_tokens]
        if self._options.size == "machine":
            costs, gained = self._costs, 0.0
            best = (-rate * costs.verification(1), 0)
            for size, node in enumerate(order, 1):
                gained += exp(grown.tree.scores[node])
                value = gained - rate * costs.verification(size + 1)
                if value >= best[0]:
                    best = value, size
            order = order[: best[1]]
        if len(order) == len(grown.tree) - 1:
            return grown.tree
        return grown.tree.subtree(sorted([0, *order]))


class ThroughputEstimate:
    """Committed tokens per unit of time in this answer; `expected`, from the dev split, counts as `_ROUNDS` rounds."""

    def __init__(self, expected: float) -> None:
        self._spent = _ROUNDS * 1.0
        self._committed = expected * self._spent

    @property
    def rate(self) -> float:
        """Tokens per unit of time."""
        return self._committed / self._spent

    def spend(self, time: float) -> None:
        """Count time spent."""
        self._spent += time

    def commit(self, tokens: int) -> None:
        """Count committed tokens."""
        self._committed += tokens


_ROUNDS = 16


class CalibratedRound:
    """The state of a round.

    Attributes:
        grown: its tree, with what look-up found at its nodes.
        steps: 0 for look-up, 1 for a middle call.
        evaluated: by node, the middle's best tokens and all that look-up found, with the middle's log-probabilities.
    """

    def __init__(self, grown: SurvivalTree) -> None:
        self.grown = grown
        self.steps: list[int] = []
        self.evaluated: dict[int, list[tuple[int, float]]] = {}

    @property
    def calls(self) -> int:
        """Middle calls so far."""
        return sum(self.steps)

    def take(self, bit: int) -> int:
        """Count a step, 1 for a call; return its number."""
        self.steps.append(bit)
        return len(self.steps)

    def hits(self, node: int, token: int) -> dict[str, bool]:
        """Return, for each drafter with a first choice behind a node, whether that was `token`."""
        hits = {}
        found = self.grown.found.get(node)
        if found is not None and found.logits:
            hits["small"] = max(found.logits, key=lambda one: found.logits[one]) == token
        if node in self.evaluated:
            hits["middle"] = self.evaluated[node][0][0] == token
        return hits
