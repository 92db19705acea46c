"""Tree speculative decoding: draft, verify, commit, until the answer ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from methods.core.edge_tally import tally_edges
from methods.core.generation import Forward, Generation, Round
from methods.core.sampling import DecodingParams
from methods.core.stopwatch import Stopwatch
from methods.core.tree import DraftTree
from methods.core.verifiers import KnownAnswer, TargetVerifier, Verifier
from methods.drafters.drafter import Drafter
from methods.method import Method, register_method


class DraftedRound(NamedTuple):
    """A round with the tree sent and the tokens committed."""

    tree: DraftTree
    new: list[int]
    record: Round


@register_method("autoregressive")
class TreeMethod(Method):
    """The engine; on its own it drafts nothing, which is autoregressive decoding.

    Subclasses override `drafters` and `draft`, which makes a round's tree.
    """

    @property
    def drafters(self) -> Sequence[Drafter]:
        """The drafters in use."""
        return ()

    @property
    def max_draft_tokens(self) -> int:
        """Most draft nodes that a round sends to the target, root not counted."""
        return self.settings.budget

    @property
    def round_rows(self) -> int:
        """KV rows that a round's drafting may need in a neural drafter, besides those of the answer."""
        return 0

    def generate(self, prompt_ids: Sequence[int], params: DecodingParams) -> Generation:
        """Decode one prompt; see `Method.generate`."""
        self.check_prompt(prompt_ids, params)
        target = self.models.target
        verifier = TargetVerifier(target, params, self.models.tokenizer)

        watch = Stopwatch(target.timeline, spans=False)
        watch.start()
        prefill = self._begin_answer(prompt_ids, params.max_new_tokens)
        prefill_s = watch.stop()

        watch = Stopwatch(target.timeline)
        watch.start()
        rounds = list(self._rounds(prompt_ids, params.max_new_tokens, verifier, watch))
        decode_s = watch.stop()

        output = [token for one in rounds for token in one.new]
        flips = [flip for flip in verifier.sampler.flips if flip[0] < len(output)]
        assert verifier.finish is not None  # the rounds went on until it was
        return Generation(
            token_ids=output,
            finish=verifier.finish,
            rounds=[one.record for one in rounds],
            prefill=prefill,
            prefill_s=prefill_s,
            decode_s=decode_s,
            spans=watch.spans(),
            edges=tally_edges((one.tree, one.new) for one in rounds),
            flips=None if params.reference is None else flips,
        )

    def redraft(
        self, prompt_ids: Sequence[int], token_ids: Sequence[int], max_new_tokens: int
    ) -> tuple[list[Forward], Iterator[DraftedRound]]:
        """Return the prefill and the rounds in which this method decodes a known text.

        No tree is verified, so the target runs no forward except a prefill that drafters need.

        Args:
            prompt_ids: the prompt.
            token_ids: the target's committed tokens, from this method or another.
            max_new_tokens: the limit they were decoded with; an answer that ended earlier drafted beyond its end.
        """
        prefill = self._begin_answer(prompt_ids, max_new_tokens)
        return prefill, self._rounds(prompt_ids, max_new_tokens, KnownAnswer(token_ids), Stopwatch(spans=False))

    def _begin_answer(self, prompt_ids: Sequence[int], max_new_tokens: int) -> list[Forward]:
        capacity = len(prompt_ids) + max_new_tokens + self.max_draft_tokens + 1
        self.models.target.begin(capacity)
        return self.begin(prompt_ids, capacity)

    def _rounds(
        self, prompt_ids: Sequence[int], max_new_tokens: int, verifier: Verifier, watch: Stopwatch
    ) -> Iterator[DraftedRound]:
        context, output = list(prompt_ids), list[int]()
        while not verifier.ended:
            forwards: list[Forward] = []
            tree = self.draft(context, max_new_tokens - len(output), watch, forwards)
            with watch.span("verify"):
                forwards.append(Forward("target", None, len(tree), len(context) - 1))
                accepted, tokens = verifier.accept(tree, context, len(output))
            new = verifier.cut(output, tokens)
            output += new
            context += new
            self.advance(new, [tree.source(node) for node in accepted], watch)
            kept = accepted[1 : len(new) + 1]
            record = Round(self.schedule(), len(tree) - 1, len(kept), forwards, tree.by_middle(kept))
            yield DraftedRound(tree, new, record)

    def begin(self, context: Sequence[int], capacity: int) -> list[Forward]:
        """Start a prompt: prefill the target with all but the last token, let drafters read the prompt.

        Args:
            context: the prompt.
            capacity: KV rows that the whole answer needs in the target.

        Returns:
            The forwards that were run.
        """
        self.prefill_target(context)
        forwards = [Forward("target", None, len(context) - 1, 0)] if len(context) > 1 else []
        for drafter in self.drafters:
            forwards += drafter.begin(context, capacity + self.round_rows)
        return forwards

    def prefill_target(self, context: Sequence[int]) -> None:
        """Prefill the target with all of a prompt but its last token."""
        self.models.target.prefill(context[:-1])

    def draft(self, context: Sequence[int], remaining: int, watch: Stopwatch, forwards: list[Forward]) -> DraftTree:
        """Return the round's tree, ready for the target.

        Args:
            context: committed tokens; the last is the root.
            remaining: tokens that may still be committed; deeper nodes cannot be.
            watch: times the phases.
            forwards: the drafters' forwards are appended here.
        """
        return DraftTree(context[-1])

    def advance(self, new: Sequence[int], accepted: Sequence[int], watch: Stopwatch) -> None:
        """Pass the committed tokens to the drafters.

        Args:
            new: the committed tokens.
            accepted: the accepted path in node ids of the drafted tree, root first.
            watch: times the phases.
        """
        for drafter in self.drafters:
            with watch.span(drafter.role):
                drafter.advance(new, accepted)

    def schedule(self) -> list[int] | None:
        """Return the round's schedule, one bit per step taken; None if the method has none."""
        return None
