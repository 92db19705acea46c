from types import SimpleNamespace

import pytest

from foundation.errors import UserError
from harness.models.loading import eos_ids
from methods.core.sampling import DecodingParams
from methods.core.stopping import Stopper


class Bytes:
    """A tokenizer with a token a byte, so that letters may span tokens."""

    def decode(self, token_ids):
        return bytes(token_ids).decode(errors="replace")


def stopper(decoder=None, **params):
    return Stopper(DecodingParams(**{"max_new_tokens": 100, **params}), decoder)


def cut_blocks(make, blocks, **params):
    """Commit block after block until the answer ends; return the tokens, the reason and the blocks used."""
    rule, committed = make(**params), []
    for used, block in enumerate(blocks, start=1):
        new, finish = rule.cut(committed, block)
        committed += new
        if finish is not None:
            return committed, finish, used
    return committed, None, len(blocks)


def check_eos_inside_a_block(make):
    assert cut_blocks(make, [[5, 6, 7], [8, 2, 9]], eos_ids=frozenset({2})) == ([5, 6, 7, 8, 2], "eos", 2)
    assert cut_blocks(make, [[2, 2, 5]], eos_ids=frozenset({2})) == ([2], "eos", 1)
    assert cut_blocks(make, [[5, 3, 2]], eos_ids=frozenset({2, 3})) == ([5, 3], "eos", 1)
    assert cut_blocks(make, [[5, 2]], eos_ids=frozenset()) == ([5, 2], None, 1)


class LooksAtTheLastTokenOnly(Stopper):
    """The mutant: a block is checked once it is whole."""

    def cut(self, committed, new):
        kept, finish = super().cut([*committed, *new[:-1]], new[-1:])
        return [*new[:-1], *kept], finish


def mutant(decoder=None, **params):
    return LooksAtTheLastTokenOnly(DecodingParams(**{"max_new_tokens": 100, **params}), decoder)


def test_an_end_token_inside_a_block_ends_the_answer_and_is_its_last_token():
    check_eos_inside_a_block(stopper)

    with pytest.raises(AssertionError):
        check_eos_inside_a_block(mutant)


def check_exact_lengths(make):
    for most in (1, 2, 3):
        assert cut_blocks(make, [[5, 6, 7, 8]], max_new_tokens=most) == ([5, 6, 7, 8][:most], "length", 1)
        assert cut_blocks(make, [[5], [6, 7, 8]], max_new_tokens=most)[:2] == ([5, 6, 7][:most], "length")


def test_an_answer_is_never_longer_than_asked():
    check_exact_lengths(stopper)

    with pytest.raises(AssertionError):
        check_exact_lengths(mutant)


def test_an_end_token_on_the_last_place_counts_as_the_end():
    assert cut_blocks(stopper, [[5, 2, 7]], max_new_tokens=2, eos_ids=frozenset({2})) == ([5, 2], "eos", 1)


def cut_text(blocks, stop, **params):
    decoded = [list(block.encode() if isinstance(block, str) else block) for block in blocks]
    tokens, finish, used = cut_blocks(lambda **p: stopper(Bytes(), **p), decoded, stop=tuple(stop), **params)
    return bytes(tokens), finish, used


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        (["one END two"], (b"one END", "stop", 1)),
        (["one E", "ND two"], (b"one END", "stop", 2)),
        (["one ", "E", "N", "D"], (b"one END", "stop", 4)),
        (["ENDED"], (b"END", "stop", 1)),
        (["EN", "EN", "D"], (b"ENEND", "stop", 3)),
        (["EN", "d"], (b"ENd", None, 2)),
    ],
)
def test_a_stop_string_ends_the_answer_in_the_token_that_completes_it(blocks, expected):
    assert cut_text(blocks, ["END"]) == expected


def test_the_first_of_several_stop_strings_wins():
    assert cut_text(["a long text"], ["text", "lo"])[0] == b"a lo"


def test_a_long_stop_string_and_one_of_letters_of_many_bytes_are_found_across_blocks():
    long = "the very end of the answer, at last"
    assert cut_text([*long, "more"], [long])[0] == long.encode()
    stop = "終わり"
    block = ("ああ" + stop).encode()
    assert cut_text([block[:4], block[4:8], block[8:11], block[11:] + b"!"], [stop])[0] == block


def test_a_stop_string_in_the_prompt_does_not_count():
    assert stopper(Bytes(), stop=("END",)).cut([], list(b"D")) == ([ord("D")], None)


def test_stop_strings_need_a_tokenizer():
    with pytest.raises(ValueError, match="tokenizer"):
        stopper(stop=("END",))


@pytest.mark.parametrize(
    ("configured", "tokenizers", "expected"),
    [
        (None, None, set()),
        (None, 5, {5}),
        (0, None, {0}),
        (7, 5, {7}),
        ([7, 8], 5, {7, 8}),
        ([], 5, set()),
    ],
)
def test_end_tokens_may_be_none_one_or_several(configured, tokenizers, expected):
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=configured))

    assert eos_ids(model, SimpleNamespace(eos_token_id=tokenizers)) == frozenset(expected)


@pytest.mark.parametrize("configured", ["256", 2.0, True, [None], [[1]], {"id": 1}])
def test_an_end_that_is_no_token_id_is_refused(configured):
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=configured))

    with pytest.raises(UserError, match=r"eos_token_id: .* is neither a token id nor a list of them"):
        eos_ids(model, SimpleNamespace())


def test_a_model_without_a_generation_config_leaves_the_end_token_to_the_tokenizer():
    assert eos_ids(SimpleNamespace(generation_config=None), SimpleNamespace(eos_token_id=3)) == {3}
    assert eos_ids(SimpleNamespace(generation_config=None), SimpleNamespace()) == frozenset()
