import pytest

from harness.models.prompts import conversation, prompt_ids
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


@pytest.mark.parametrize("template", ["{{ raise_exception('system only') }}", "{{ broken", "{{ missing.key }}"])
def test_a_template_that_refuses_is_a_prompt_error(template):
    tokenizer = toy_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(PromptError, match="chat template refuses"):
        prompt_ids(tokenizer, "chat", conversation(["Hi"], []))
