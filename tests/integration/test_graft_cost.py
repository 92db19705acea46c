"""Evaluating only what a middle step needs pays: far fewer nodes than the whole tree at every call."""

import pytest

from methods.drafters.middle import MiddleDrafter

pytestmark = [pytest.mark.torch, pytest.mark.smollm2]


@pytest.fixture(scope="module")
def pair():
    from harness.models.loading import load_pair
    from harness.models.pair import get_pair

    return load_pair(get_pair("smollm2-skip"), dtype="bf16", device="cpu")


class Counted(MiddleDrafter):
    """Counts what it evaluates, and what one forward over the whole tree at every call would."""

    evaluated = whole = 0

    def extend(self, tree, frontier, step, cap):
        Counted.whole += tree.held
        grown, work = super().extend(tree, frontier, step, cap)
        Counted.evaluated += 0 if work is None else work.tokens
        return grown, work


def test_a_middle_step_evaluates_less_than_40_percent_of_the_tree(pair, monkeypatch):
    import methods.treegraft.method
    from harness.models.prompts import conversation, prompt_ids
    from methods.catalog import load_family, resolve
    from methods.core.sampling import DecodingParams

    monkeypatch.setattr(methods.treegraft.method, "MiddleDrafter", Counted)
    spec = resolve("treegraft-fixed", definitions={}, pair={"budget": 7}, config={}, flags={})
    method = load_family(spec.family)(pair.models, spec.settings)
    for text in ("Write a poem about the sea.", "List three uses of salt."):
        prompt = prompt_ids(pair.models.tokenizer, "chat", conversation([text], []))
        method.generate(prompt, DecodingParams(max_new_tokens=12))

    assert 0 < Counted.evaluated < 0.4 * Counted.whole
