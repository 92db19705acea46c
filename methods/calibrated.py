"""Calibrated grafting (ours): both drafters' evidence on one scale, trees as large as the machine makes them worth.

Close to what TreeSpark does for one block drafter (calibrated edges, survival, load-adaptive size).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, log

from harness.errors import UserError
from methods.core.generation import Forward
from methods.core.stopwatch import Stopwatch
from methods.core.tree import DraftTree
from methods.drafters.edge_model import Recent, Visit
from methods.drafters.neural import NeuralDrafter, common_vocabulary
from methods.drafters.ngram_index import NgramIndex
from methods.drafters.survival import SurvivalTree
from methods.method import Models, register_method
from methods.schedulers.calibrated_options import calibrated_options
from methods.schedulers.edge_artifact import CostTable, EdgeArtifact, load_edges
from methods.settings import Settings
from methods.tree_method import TreeMethod


@register_method("calibrated")
class CalibratedGrafting(TreeMethod):
    """The engine with a tree grown by survival, and the middle called while that should pay.

    Args:
        models: the pair's models.
        settings: the method's parameters.
        artifact: what it was fitted to be; None takes that of the settings.

    Raises:
        UserError: no fitted edge model, no middle drafter, or options that are not usable.
    """

    def __init__(self, models: Models, settings: Settings, artifact: EdgeArtifact | None = None) -> None:
        super().__init__(models, settings)
        self._options = calibrated_options(settings)
        self._artifact = artifact or load_edges(settings)
        self.visits: list[Visit] | None = None
        """Where a list stands here, what was known at each accepted node is appended: fitting learns from it."""
        if models.middle is None:
            raise UserError(models.no_middle)
        vocabulary = common_vocabulary(models.target, models.middle)
        self._middle = NeuralDrafter(models.middle, width=settings.width, vocabulary=vocabulary)
        self._index: NgramIndex  # these are of a prompt: `begin` makes them
        self._costs: CostTable
        self._recent: Recent
        self._reached: Reached
        self._round: _Round  # of a round: `draft` makes it
        self.drafted = DraftTree(0)
        """The last round's tree before it was cut."""

    @property
    def most_sent(self) -> int:
        """Most draft nodes that a round sends to the target, root not counted."""
        return self._options.most if self._options.size == "machine" else self.settings.budget

    def begin(self, context: Sequence[int], capacity: int) -> list[Forward]:
        """Prefill target and middle, index the prompt."""
        forwards = super().begin(context, capacity)
        self._middle.begin(context, capacity + self._most_held)
        if self._middle.model.length:
            forwards.append(Forward("middle", None, self._middle.model.length, 0))
        self._index = NgramIndex(len(self._artifact.edges.copied))
        self._index.extend(context)
        self._costs = self._artifact.costs_at(len(context))
        self._recent, self._reached = Recent(), Reached(self._artifact.rate)
        return forwards

    def draft(self, context: Sequence[int], remaining: int, watch: Stopwatch, forwards: list[Forward]) -> DraftTree:
        """Return the tree of all nodes that are worth their place."""
        costs, rate = self._costs, self._reached.rate
        deepest = min(remaining - 1, self.models.target.max_positions - len(context))
        sized = self._options.size == "machine"
        with watch.span("small"):
            grown = SurvivalTree(
                context,
                self._index,
                self._artifact.edges,
                self._recent,
                floor=log(rate * costs.least_node) if sized else -inf,
                sent=self.most_sent,
                most=self._most_held,
                deepest=deepest,
                width=self.settings.width,
            )
            if deepest > 0:
                grown.grow()
        self._middle.begin_round(context)
        self._round = _Round(grown)
        self._small_forward(grown, context, forwards)
        while nodes := self._worth_calling(grown, watch):
            self._call(grown, nodes, context, watch, forwards)
        self.drafted = grown.tree
        sent = self._sent(grown, rate)
        self._reached.spend(costs.verification(len(sent)))
        return sent

    def advance(self, new: Sequence[int], accepted: Sequence[int], watch: Stopwatch) -> None:
        """Let the index grow with the context, keep the middle's KV rows of the accepted path, learn from both."""
        with watch.span("small"):
            self._index.extend(new)
            recent = self._recent
            for node, token in zip(accepted, new, strict=False):
                self._recent = self._recent.after(**self._round.hits(node, token))
                if self.visits is not None:
                    self.visits += self._round.visit(node, token, recent)
            self._reached.commit(len(new))
        with watch.span("middle"):
            self._middle.commit(accepted)

    def schedule(self) -> list[int] | None:
        """Return the round's steps: 0 where look-up grew the tree, 1 where the middle was called."""
        return self._round.steps

    @property
    def _most_held(self) -> int:
        return 4 * self.most_sent + 1

    def _worth_calling(self, grown: SurvivalTree, watch: Stopwatch) -> list[int]:
        """Return the nodes to evaluate in one call, parents first; none where no call is worth its time."""
        middle, done = self._middle, self._round
        if done.calls == self.settings.steps:
            return []
        with watch.span("scheduler"):
            if self._options.when == "once":
                return [0] if not done.calls and grown.found and middle.room >= 0 else []
            unseen = 0 if done.calls else middle.nodes.unseen
            price, worth, gained = self._reached.rate, self._artifact.worth, 0.0
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
        self,
        grown: SurvivalTree,
        nodes: list[int],
        context: Sequence[int],
        watch: Stopwatch,
        forwards: list[Forward],
    ) -> None:
        done = self._round
        with watch.span("middle"):
            seen = self._middle.seen
            evaluated = self._middle.evaluate(grown.tree, nodes)
            for node, proposals in zip(nodes, self._proposals(grown, nodes), strict=True):
                done.evaluated[node] = proposals
                grown.fuse(node, proposals, self._options.fusion)
            grown.settle()
        forwards.append(Forward("middle", done.take(1), evaluated, seen))
        self._reached.spend(self._costs.call(evaluated))
        with watch.span("small"):
            grown.grow()
        self._small_forward(grown, context, forwards)

    def _proposals(self, grown: SurvivalTree, nodes: list[int]) -> list[list[tuple[int, float]]]:
        """Return, for each evaluated node, the middle's best tokens and all that look-up found, with its scores."""
        found = self._middle.nodes.best(nodes, self.settings.width)
        asked = [
            (place, token)
            for place, node in enumerate(nodes)
            for token in grown.found[node].logits.keys() - {token for token, _ in found[place]}
        ]
        asked.sort()
        scores = self._middle.nodes.log_probabilities([nodes[place] for place, _ in asked], [one for _, one in asked])
        for (place, token), score in zip(asked, scores, strict=True):
            found[place].append((token, score))
        return found

    def _small_forward(self, grown: SurvivalTree, context: Sequence[int], forwards: list[Forward]) -> None:
        if grown.looked_up:
            forwards.append(Forward("small", self._round.take(0), grown.looked_up, len(context)))
            grown.looked_up = 0

    def _sent(self, grown: SurvivalTree, rate: float) -> DraftTree:
        """Return the tree of the likeliest nodes, as many as are worth more than the time that they take."""
        order = grown.by_survival()[: self.most_sent]
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


class Reached:
    """Committed tokens a unit of time so far in this answer: what time is worth.

    Args:
        expected: the rate that was reached on the fit questions; it counts like the first `_ROUNDS` rounds.
    """

    def __init__(self, expected: float) -> None:
        self._spent = _ROUNDS * 1.0
        self._committed = expected * self._spent

    @property
    def rate(self) -> float:
        """Tokens a unit of time."""
        return self._committed / self._spent

    def spend(self, time: float) -> None:
        """Count time that was spent."""
        self._spent += time

    def commit(self, tokens: int) -> None:
        """Count tokens that were committed."""
        self._committed += tokens


_ROUNDS = 16


class _Round:
    """What a round has done so far."""

    def __init__(self, grown: SurvivalTree) -> None:
        self._grown = grown
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
        """Return whose first choice behind a node was right, of the drafters that made one."""
        hits = {}
        found = self._grown.found.get(node)
        if found is not None and found.logits:
            hits["small"] = max(found.logits, key=lambda one: found.logits[one]) == token
        if node in self.evaluated:
            hits["middle"] = self.evaluated[node][0][0] == token
        return hits

    def visit(self, node: int, token: int, recent: Recent) -> list[Visit]:
        """Return what was known at an accepted node, where anything was looked up."""
        found = self._grown.found.get(node)
        if found is None:
            return []
        return [Visit(self._grown.tree.depths[node], found.evidence, self.evaluated.get(node), recent, token)]
