"""Tree speculative decoding: draft, prune, verify, commit, until the answer ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from methods.core.generation import Finish, Forward, Generation, Round
from methods.core.sampling import DecodingParams, Sampler
from methods.core.stopping import Stopper
from methods.core.stopwatch import Stopwatch
from methods.core.tree import DraftTree
from methods.core.verify import walk
from methods.drafters.ngram import Estimate, NgramDrafter, counts_estimate
from methods.drafters.prefill_estimate import PrefillEstimate
from methods.method import Method, register_method


@register_method("autoregressive")
class TreeMethod(Method):
    """The engine; by itself it drafts nothing, which is autoregressive decoding.

    Subclasses say how a round's tree is drafted.
    """

    spans = True
    """Whether phases are timed; off only to check that timing them costs nothing."""

    def generate(self, prompt_ids: Sequence[int], params: DecodingParams) -> Generation:
        """Decode one prompt; see `Method.generate`."""
        self.check_prompt(prompt_ids, params)
        target = self.models.target
        sampler, stopper = Sampler(params), Stopper(params, self.models.tokenizer)
        context, output = list(prompt_ids), list[int]()
        finish: Finish | None = None
        rounds = []

        watch = Stopwatch(target.synchronise, spans=False)
        watch.start()
        target.begin(len(prompt_ids) + params.max_new_tokens + self.settings.budget + 1)
        self.begin(context)
        prefill_s = watch.stop()

        watch = Stopwatch(target.synchronise, spans=self.spans)
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
            self.advance(new, watch)
            rounds.append(Round(self.schedule(forwards), len(tree) - 1, min(len(accepted) - 1, len(new)), forwards))
        decode_s = watch.stop()
        prefill = [Forward("target", None, len(prompt_ids) - 1, 0)] if len(prompt_ids) > 1 else []
        return Generation(output, finish, rounds, prefill, prefill_s, decode_s, watch.spans())

    def begin(self, context: Sequence[int]) -> None:
        """Start a prompt: prefill the target with all but the last token, set drafters up."""
        self.models.target.prefill(context[:-1])

    def draft(self, context: Sequence[int], remaining: int, watch: Stopwatch, forwards: list[Forward]) -> DraftTree:
        """Return the round's tree, ready for the target.

        Args:
            context: committed tokens; the last is the root.
            remaining: tokens that may still be committed; deeper nodes could never be.
            watch: charges phases.
            forwards: the drafters' forwards are appended here.
        """
        return DraftTree(context[-1])

    def advance(self, new: Sequence[int], watch: Stopwatch) -> None:
        """Tell drafters what was committed."""

    def schedule(self, forwards: Sequence[Forward]) -> list[int] | None:
        """Return the round's schedule, one bit for each step taken; None where the method has none."""
        return None

    def redraft(
        self, prompt_ids: Sequence[int], token_ids: Sequence[int], rounds: Sequence[Round], max_new_tokens: int
    ) -> Iterator[DraftTree]:
        """Yield each recorded round's tree again, as it was sent to the target.

        Args:
            prompt_ids: the row's prompt.
            token_ids: the row's committed tokens.
            rounds: the row's rounds.
            max_new_tokens: what the row was decoded with; an answer that ended earlier drafted beyond its end.
        """
        watch = Stopwatch(self.models.target.synchronise, spans=False)
        self.models.target.begin(len(prompt_ids))
        context = list(prompt_ids)
        self.begin(context)
        done = 0
        for record in rounds:
            yield self.draft(context, max_new_tokens - done, watch, [])
            new = list(token_ids[done : done + record.accepted + 1])
            done += len(new)
            context += new
            self.advance(new, watch)


@register_method("small-tree")
class SmallTreeMethod(TreeMethod):
    """Every drafting step is a small step; the pruned tree goes to the target."""

    def begin(self, context: Sequence[int]) -> None:
        """Prefill the target and index the prompt."""
        target, settings = self.models.target, self.settings
        estimate: Estimate = counts_estimate
        if settings.estimate == "prefill":
            scored = PrefillEstimate(settings.width)
            scored.prefill(target, context[:-1], context)
            estimate = scored
        else:
            target.prefill(context[:-1])
        self._small = NgramDrafter(settings.longest_match, settings.width, settings.exhaustion, estimate)
        self._small.begin(context)

    def draft(self, context: Sequence[int], remaining: int, watch: Stopwatch, forwards: list[Forward]) -> DraftTree:
        """Return the pruned tree of `steps` small steps."""
        tree = DraftTree(context[-1])
        frontier = [0]
        for step in range(1, self.settings.steps + 1):
            if not frontier:
                break
            with watch.span("small"):
                forwards.append(Forward("small", step, len(frontier), len(context)))
                frontier = self._small.extend(tree, frontier, step, self.settings.cap)
        deepest = min(remaining - 1, self.models.target.max_positions - len(context))
        return tree.prune(self.settings.budget, deepest)

    def schedule(self, forwards: Sequence[Forward]) -> list[int]:
        """Return a 0 for each small step taken."""
        return [0 for forward in forwards if forward.role == "small"]

    def advance(self, new: Sequence[int], watch: Stopwatch) -> None:
        """Let the index grow with the context."""
        with watch.span("small"):
            self._small.advance(new)
