"""Tree speculative decoding: draft, prune, verify, commit, until the answer ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from methods.core.edge_tally import tally_edges
from methods.core.generation import Finish, Forward, Generation, Round
from methods.core.sampling import DecodingParams, Sampler
from methods.core.stopping import Stopper
from methods.core.stopwatch import Stopwatch
from methods.core.tree import DraftTree
from methods.core.verify import walk
from methods.method import Method, register_method


@register_method("autoregressive")
class TreeMethod(Method):
    """The engine; by itself it drafts nothing, which is autoregressive decoding.

    Subclasses say how a round's tree is drafted.
    """

    spans = True
    """Whether phases are timed; off only to check that timing them costs nothing."""

    @property
    def most_sent(self) -> int:
        """Most draft nodes that a round sends to the target, root not counted."""
        return self.settings.budget

    def generate(self, prompt_ids: Sequence[int], params: DecodingParams) -> Generation:
        """Decode one prompt; see `Method.generate`."""
        self.check_prompt(prompt_ids, params)
        target = self.models.target
        sampler, stopper = Sampler(params), Stopper(params, self.models.tokenizer)
        context, output = list(prompt_ids), list[int]()
        finish: Finish | None = None
        rounds, taken = [], list[tuple[DraftTree, list[int]]]()

        watch = Stopwatch(target.timeline, spans=False)
        watch.start()
        capacity = self._capacity(prompt_ids, params.max_new_tokens)
        target.begin(capacity)
        prefill = self.begin(context, capacity)
        prefill_s = watch.stop()

        watch = Stopwatch(target.timeline, spans=self.spans)
        watch.start()
        while finish is None:
            forwards: list[Forward] = []
            tree = self.draft(context, params.max_new_tokens - len(output), watch, forwards)
            with watch.span("verify"):
                forwards.append(Forward("target", None, len(tree), target.length))
                logits = target.evaluate(tree.tokens, tree.depths, tree.visibility())
                accepted, drawn = walk(tree, logits, sampler, context, len(output))
                target.commit(accepted)
            new, finish = stopper.cut(output, drawn)
            output += new
            context += new
            self.advance(new, [tree.source(node) for node in accepted], watch)
            taken.append((tree, new))
            kept = accepted[1 : len(new) + 1]
            rounds.append(Round(self.schedule(), len(tree) - 1, len(kept), forwards, tree.by_middle(kept)))
        decode_s = watch.stop()
        flips = None if params.reference is None else [flip for flip in sampler.flips if flip[0] < len(output)]
        edges = tally_edges(taken)
        return Generation(output, finish, rounds, prefill, prefill_s, decode_s, watch.spans(), edges=edges, flips=flips)

    def begin(self, context: Sequence[int], capacity: int) -> list[Forward]:
        """Start a prompt: prefill the target with all but the last token, set drafters up.

        Args:
            context: the prompt.
            capacity: KV rows that the whole answer needs in the target.

        Returns:
            The forwards that took.
        """
        self.models.target.prefill(context[:-1])
        return [Forward("target", None, len(context) - 1, 0)] if len(context) > 1 else []

    def draft(self, context: Sequence[int], remaining: int, watch: Stopwatch, forwards: list[Forward]) -> DraftTree:
        """Return the round's tree, ready for the target.

        Args:
            context: committed tokens; the last is the root.
            remaining: tokens that may still be committed; deeper nodes could never be.
            watch: charges phases.
            forwards: the drafters' forwards are appended here.
        """
        return DraftTree(context[-1])

    def advance(self, new: Sequence[int], accepted: Sequence[int], watch: Stopwatch) -> None:
        """Tell drafters what was committed.

        Args:
            new: the committed tokens.
            accepted: the nodes of the accepted path in the tree as it was drafted, root first.
            watch: charges phases.
        """

    def schedule(self) -> list[int] | None:
        """Return the round's schedule, one bit for each step taken; None where the method has none."""
        return None

    def redraft(
        self, prompt_ids: Sequence[int], token_ids: Sequence[int], max_new_tokens: int
    ) -> tuple[list[Forward], Iterator[tuple[DraftTree, Round]]]:
        """Return the prefill and the rounds in which this method decodes a known text, each with its tree.

        No tree is verified, so no target forward is run, but for a prefill that the drafters want.

        Args:
            prompt_ids: the prompt.
            token_ids: the target's committed tokens, by this method or another.
            max_new_tokens: what they were decoded with; an answer that ended earlier drafted beyond its end.
        """
        capacity = self._capacity(prompt_ids, max_new_tokens)
        self.models.target.begin(capacity)
        prefill = self.begin(prompt_ids, capacity)
        return prefill, self._redrafted(list(prompt_ids), token_ids, max_new_tokens)

    def _capacity(self, prompt_ids: Sequence[int], max_new_tokens: int) -> int:
        return len(prompt_ids) + max_new_tokens + self.most_sent + 1

    def _redrafted(
        self, context: list[int], token_ids: Sequence[int], max_new_tokens: int
    ) -> Iterator[tuple[DraftTree, Round]]:
        watch = Stopwatch(spans=False)
        done = 0
        while done < len(token_ids):
            forwards: list[Forward] = []
            tree = self.draft(context, max_new_tokens - done, watch, forwards)
            forwards.append(Forward("target", None, len(tree), len(context) - 1))
            path = tree.follow(token_ids[done:])
            new = list(token_ids[done : done + len(path)])
            record = Round(self.schedule(), len(tree) - 1, len(path) - 1, forwards, tree.by_middle(path))
            yield tree, record
            done += len(new)
            context += new
            self.advance(new, [tree.source(node) for node in path], watch)
