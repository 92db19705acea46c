from datetime import date

import pytest

from harness.models.prompting import prompting_of
from harness.models.prompts import conversation, prompt_ids, split_markers
from harness.models.toy import toy_tokenizer
from methods.method import PromptError

pytestmark = pytest.mark.torch

BOS = 1


@pytest.fixture
def tokenizer():
    """A tokenizer that puts a BOS token in front, with a template that writes one too, as Llama's do."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = toy_tokenizer()
    bos = tokenizer.convert_ids_to_tokens(BOS)
    tokenizer.add_special_tokens({"bos_token": bos})
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, BOS)])
    tokenizer.chat_template = "{{ bos_token }}" + tokenizer.chat_template
    return tokenizer


def test_the_tokenizer_of_these_tests_would_add_a_second_bos(tokenizer):
    text = tokenizer.apply_chat_template(conversation(["Hi"], []), add_generation_prompt=True, tokenize=False)
    assert tokenizer(text)["input_ids"][:2] == [BOS, BOS]


@pytest.mark.parametrize("template", ["chat", "plain"])
@pytest.mark.parametrize("answers", [[], ["Hello."]])
def test_a_prompt_has_exactly_one_bos_at_every_turn(tokenizer, template, answers):
    ids = prompt_ids(tokenizer, template, conversation(["Hi", "And?"], answers))
    assert ids.count(BOS) == 1
    assert ids[0] == BOS


def test_a_chat_waits_for_the_assistant_and_a_plain_prompt_is_the_bare_text():
    tokenizer = toy_tokenizer()
    messages = conversation(["Hi", "And?"], ["Hello."])
    chat = tokenizer.decode(prompt_ids(tokenizer, "chat", messages))
    assert chat == "[user] Hi\n[assistant] Hello.\n[user] And?\n[assistant] "
    assert tokenizer.decode(prompt_ids(tokenizer, "plain", messages)) == "Hi\nHello.\nAnd?"


def test_a_conversation_stops_at_the_turn_that_is_asked():
    assert [message["content"] for message in conversation(["a", "b", "c"], ["x"])] == ["a", "x", "b"]
    assert [message["role"] for message in conversation(["a", "b"], ["x"])] == ["user", "assistant", "user"]


def dated(template):
    tokenizer = toy_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize(
    "template",
    [
        "{{ strftime_now('%d %b %Y') }}",
        "{% if strftime_now is defined %}{% set day = strftime_now('%d %b %Y') %}{% endif %}{{ day }}",
        "{% macro today() %}{{ strftime_now('%d %b %Y') }}{% endmacro %}{{ today() }}",
    ],
)
def test_a_template_sees_the_day_that_it_is_given_and_a_pinned_one_otherwise(template):
    tokenizer = dated(template)

    def text(*day):
        return tokenizer.decode(prompt_ids(tokenizer, "chat", conversation(["Hi"], []), *day))

    assert text() == "26 Jul 2024"
    assert text(date(2025, 3, 1)) == "01 Mar 2025"


@pytest.mark.parametrize("day", [date(2024, 7, 26), date(2025, 3, 1)])
def test_a_date_is_written_as_the_templates_own_function_writes_it(day, monkeypatch):
    from datetime import datetime

    from transformers.utils import chat_template_utils

    class Then(datetime):
        @classmethod
        def now(cls):
            return datetime(day.year, day.month, day.day)

    formats = ["%d %b %Y", "%-d %B, %Y", "%A %H:%M:%S", "100%% %%d", "%F %T %j", "%x %X %c", "'%y\"", ""]
    calls = " ".join(
        f"{{{{ strftime_now({text!r}) }}}}|{{{{ strftime_now(format={text!r})|upper }}}}" for text in formats
    )
    tokenizer = dated(f"\n {{% if strftime_now is defined %}}\n{calls}{{% endif %}}\n\n")
    ours = tokenizer.decode(prompt_ids(tokenizer, "chat", conversation(["Hi"], []), day))
    monkeypatch.setattr(chat_template_utils, "datetime", Then)
    assert ours == tokenizer.apply_chat_template(conversation(["Hi"], []), tokenize=False)
    assert str(day.year) in ours


def test_what_prompts_depend_on_holds_the_day_only_where_the_template_asks_for_it():
    def day(template):
        return prompting_of(dated(template), "chat", [], date(2025, 3, 1)).template_date

    assert day("{{ strftime_now('%Y') }}") == date(2025, 3, 1)
    assert day("hi") is None
    assert prompting_of(dated("{{ strftime_now('%Y') }}"), "chat", [], None).template_date == date(2024, 7, 26)
    plain = prompting_of(dated("{{ strftime_now('%Y') }}"), "plain", [2, 1], None)
    assert (plain.chat_template, plain.template_date, plain.eos_ids) == (None, None, [1, 2])


def test_what_prompts_depend_on_tells_tokenizers_apart_by_what_they_do(tokenizer):
    from tokenizers import pre_tokenizers

    lower = toy_tokenizer()
    lower.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    another_end = toy_tokenizer()
    another_end.eos_token = another_end.convert_ids_to_tokens(7)
    same, *others = (
        prompting_of(one, "chat", [], None).tokenizer for one in (toy_tokenizer(), tokenizer, lower, another_end)
    )
    assert same == prompting_of(toy_tokenizer(), "chat", [], None).tokenizer
    assert len({same, *others}) == 4


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('system only') }}",
        "{{ broken",
        "{{ missing.key }}",
        "{% if tools|length > 0 %}x{% endif %}hi",
        "{{ 1/0 }}",
        "{{ messages[0]['content'] + 1 }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{{ '\\ud800' }}",
    ],
)
def test_a_template_that_refuses_is_a_prompt_error(template):
    tokenizer = toy_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(PromptError, match="chat template refuses"):
        prompt_ids(tokenizer, "chat", conversation(["Hi"], []))


def marked(*, whole):
    """A tokenizer with the markers of its template in its vocabulary, as tokens of their own or as text."""
    from tokenizers import AddedToken, models

    tokenizer, markers = toy_tokenizer(), ["<|user|>", "<|assistant|>"]
    tokenizer.chat_template = "{% for one in messages %}<|{{ one.role }}|>{{ one.content }}<|end|>[b]{% endfor %}"
    if whole:
        tokenizer.add_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
    else:
        vocabulary = {**tokenizer.get_vocab(), **{marker: 257 + place for place, marker in enumerate(markers)}}
        tokenizer.backend_tokenizer.model = models.BPE(vocab=vocabulary, merges=[])
    assert {*markers} < {*tokenizer.get_vocab()}
    return tokenizer


def test_a_tokenizer_that_takes_markers_of_its_template_to_pieces_is_found_out():
    assert split_markers(marked(whole=False)) == ["<|assistant|>", "<|user|>"]

    assert split_markers(marked(whole=True)) == []
    assert split_markers(toy_tokenizer()) == []
    assert split_markers(dated("{{ raise_exception('system only') }}")) == []


ESCAPES = {
    "an attribute of Python's own": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "a function's globals": "{{ raise_exception.__globals__['sys'] }}",
    "the globals of a class that is always there": "{{ cycler.__init__.__globals__.os.name }}",
    "formatting": "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "a change of what it was given": "{{ messages.append(1) }}",
    "a huge range": "{% for one in range(10 ** 9) %}x{% endfor %}",
    "an import": "{% import 'os' as os %}",
}


@pytest.mark.parametrize("dated_too", [False, True])
@pytest.mark.parametrize("template", ESCAPES.values(), ids=ESCAPES)
def test_a_template_stays_in_its_sandbox(template, dated_too):
    asks = "{% if false %}{{ strftime_now('%Y') }}{% endif %}" if dated_too else ""
    messages = conversation(["Hi"], [])

    with pytest.raises(PromptError, match=r"SecurityError|UndefinedError|OverflowError|no loader"):
        prompt_ids(dated(asks + template), "chat", messages)
    assert messages == conversation(["Hi"], [])
