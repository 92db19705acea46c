"""What of a sequence is given, what the target samples, and where its answers end."""

import pytest

from harness.distil.prompt_seeds import Opening
from harness.distil.sequence_templates import (
    Frame,
    Part,
    Segment,
    TokenLimits,
    Writing,
    article_script,
    frame_of,
    script_of,
)
from harness.models.prompts import conversation, prompt_ids

END = 9
GREEDY, SAMPLED = 100, 200  # what the target proposes at step 3: 103, its best token, and 203, a sampled one


def given(*tokens):
    return Segment(Part.GIVEN, tokens)


def sampled(limit):
    return Segment(Part.SAMPLED, limit=limit)


def answer(limit):
    return Segment(Part.ANSWER, limit=limit)


def written(*script, greedy_ends=(), sampled_ends=()):
    """Take until nothing is left; the proposals of some steps are the end token. Return tokens and letters of parts."""
    writing = Writing(list(script), frozenset({END}))
    for step in range(99):
        greedy = END if step in greedy_ends else GREEDY + step
        if not writing.take(greedy, END if step in sampled_ends else SAMPLED + step):
            break
    assert not writing.take(0, 0), "the end is the end"
    return writing.tokens, "".join(part.name[0] for part in writing.parts)


def test_a_sequence_is_given_tokens_a_sampled_question_and_a_greedy_answer():
    script = [given(1, 2), sampled(3), given(3), answer(2)]

    assert written(*script) == ([1, 2, 202, 203, 204, 3, 106, 107], "GGSSSGAA")


def test_a_question_ends_before_its_limit_with_an_end_token_which_is_left_out():
    assert written(given(1), sampled(5), given(3), answer(1), sampled_ends=[2]) == ([1, 201, 3, 103], "GSGA")


def test_a_question_can_be_empty():
    assert written(given(1), sampled(5), given(3), answer(1), sampled_ends=[1]) == ([1, 3, 102], "GGA")


def test_the_greedy_end_does_not_end_a_question_nor_the_sampled_one_an_answer():
    assert written(given(1), sampled(2), greedy_ends=[1, 2]) == ([1, 201, 202], "GSS")
    assert written(given(1), answer(2), sampled_ends=[1, 2]) == ([1, 101, 102], "GAA")


def test_an_answers_end_token_is_kept_for_it_is_to_be_predicted():
    assert written(given(1), answer(5), greedy_ends=[2]) == ([1, 101, END], "GAA")


def test_the_templates_own_end_token_behind_an_answer_is_not_doubled():
    script = [given(1), answer(5), given(END, 4), answer(1)]

    assert written(*script, greedy_ends=[2]) == ([1, 101, END, 4, 104], "GAAGA")


def test_a_template_that_goes_on_with_another_token_loses_none():
    script = [given(1), answer(5), given(4, END), answer(1)]

    assert written(*script, greedy_ends=[2]) == ([1, 101, END, 4, END, 105], "GAAGGA")


def test_nothing_follows_an_answer_that_was_cut_short():
    assert written(given(1), answer(2), given(3), answer(2)) == ([1, 101, 102], "GAA")


def test_an_article_ends_at_its_limit_or_its_end_token():
    assert written(given(1), sampled(2)) == ([1, 201, 202], "GSS")
    assert written(given(1), sampled(2), sampled_ends=[2]) == ([1, 201], "GS")


def test_given_tokens_are_ready_and_the_targets_are_not():
    writing = Writing([given(1, 2), answer(5), given(END, 3, 4), answer(1)], frozenset({END}))
    seen = [writing.ready]
    while writing.take(END if len(writing.tokens) == 3 else GREEDY, SAMPLED):
        seen.append(writing.ready)

    assert writing.tokens == [1, 2, GREEDY, END, 3, 4, GREEDY]
    assert seen == [2, 1, 0, 0, 2, 1, 0, 0]  # of the second given tokens the first is there already


def encoded(tokenizer, text):
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


@pytest.fixture(scope="module")
def toy():
    from harness.models.toy import toy_tokenizer

    return toy_tokenizer()


FRAME = Frame((1, 2), (3,), (4, 5))
LIMITS = TokenLimits(question=6, answer=7, article=8)


@pytest.mark.torch
def test_a_frame_is_what_the_chat_template_puts_around_turns(toy):
    frame = frame_of(toy, "chat")

    assert frame == Frame(*(encoded(toy, text) for text in ("[user] ", "\n[assistant] ", "\n[user] ")))


@pytest.mark.torch
def test_turns_in_their_frame_are_the_prompt_that_a_run_would_give(toy):
    frame = frame_of(toy, "chat")
    asked, answered, again = (encoded(toy, text) for text in ("Why?", "So.", "And then?"))

    framed = frame.before + asked + frame.asked + answered + frame.answered + again + frame.asked

    assert list(framed) == prompt_ids(toy, "chat", conversation(["Why?", "And then?"], ["So."]))


@pytest.mark.torch
def test_an_opening_becomes_a_question_to_write_on_and_each_further_turn_the_targets_own(toy):
    why = encoded(toy, "Why")

    script = script_of(Opening("talk", "Why", turns=2), FRAME, toy, LIMITS)

    first = [given(1, 2, *why), sampled(6), given(3), answer(7)]
    assert script == [*first, given(4, 5), sampled(6), given(3), answer(7)]


@pytest.mark.torch
def test_a_whole_question_is_not_written_on(toy):
    script = script_of(Opening("own", "Why?", whole=True), FRAME, toy, LIMITS)

    assert script == [given(1, 2, *encoded(toy, "Why?")), given(3), answer(7)]


@pytest.mark.torch
def test_an_article_is_asked_for_and_sampled(toy):
    script = article_script("Report.", FRAME, toy, LIMITS)

    assert script == [given(1, 2, *encoded(toy, "Report."), 3), sampled(8)]


def test_a_target_without_a_template_is_given_a_first_word(toy):
    frame = Frame((), (), ())

    assert script_of(Opening("free", ""), frame, toy, TokenLimits())[0].tokens
    assert frame_of(toy, "plain").asked == ()
