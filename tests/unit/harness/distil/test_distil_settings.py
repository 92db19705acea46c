"""What `treegraft distill` is asked for, from flags alone."""

import pytest

from foundation.errors import UserError
from harness.config.configuration import from_flags
from harness.distil.settings import DistilSettings

LEAST = {"layers": "0,2", "out": "drafter"}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("TREEGRAFT_DATA", raising=False)


def test_lists_are_words_between_commas():
    settings = from_flags(DistilSettings, {**LEAST, "tasks": "nq, gsm8k"})

    assert settings.layers == [0, 2]
    assert settings.tasks == ["nq", "gsm8k"]


def test_data_comes_from_the_environment_unless_a_flag_gives_it(monkeypatch):
    monkeypatch.setenv("TREEGRAFT_DATA", "there")

    assert from_flags(DistilSettings, LEAST).data == "there"
    assert from_flags(DistilSettings, {**LEAST, "data": "here"}).data == "here"


@pytest.mark.parametrize("flag", LEAST)
def test_a_flag_that_must_be_given_is_named_with_its_meaning(flag):
    with pytest.raises(UserError, match=f"^--{flag}: missing; [A-Z]"):
        from_flags(DistilSettings, {key: value for key, value in LEAST.items() if key != flag})


@pytest.mark.parametrize(
    ("flag", "value"),
    [("layers", "0,x"), ("layers", ""), ("tokens", 0), ("learning_rate", 0.0), ("epochs", 0), ("threads", 0)],
)
def test_a_value_that_cannot_be_used_is_named_with_its_flag(flag, value):
    with pytest.raises(UserError, match=rf"^--{flag.replace('_', '-')}: .* \(given: "):
        from_flags(DistilSettings, {**LEAST, flag: value})
