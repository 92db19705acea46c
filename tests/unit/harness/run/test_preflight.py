"""What a pair must have for the methods that a run asks for."""

import pytest

from foundation.errors import UserError
from harness.run.plan import make_plan


@pytest.mark.parametrize("name", ["all-mid", "csd"])
def test_a_configuration_that_its_pair_cannot_run_is_not_good(name):
    with pytest.raises(UserError, match=rf"{name}.*owner/name.*no middle"):
        make_plan(None, {"pair": "owner/name", "methods": [name], "data": "embedded", "limit": 1})


GGUF = {"pair": "smollm2", "methods": ["llamacpp-ngram"], "data": "embedded", "limit": 1}


@pytest.fixture
def bindings(monkeypatch):
    """Bindings of llama.cpp are installed."""
    monkeypatch.setattr("methods.external.facts.find_spec", lambda name: name)


@pytest.mark.usefixtures("bindings")
def test_an_engine_of_its_own_brings_its_baseline():
    plan = make_plan(None, GGUF)

    assert [spec.name for spec in plan.methods] == ["autoregressive", "llamacpp", "llamacpp-ngram"]


@pytest.mark.usefixtures("bindings")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pair": "toy"}, "llama.cpp reads GGUF files, and pair toy has none; leave it out"),
        ({"pair": "owner/name"}, "llama.cpp reads GGUF files, and pair owner/name has none; leave it out"),
        ({"device": "cuda:0"}, "llama.cpp decodes on the CPU; leave it out, or give --device cpu"),
        ({"temperature": 0.5}, "llama.cpp draws in its own way; leave it out, or give --temperature 0"),
        ({"repetition_penalty": 1.1}, "leave it out, or give --repetition-penalty 1"),
        ({"clock": "profile:cpu-2core"}, "have no per-round data to charge; leave them out"),
    ],
)
def test_a_run_that_llama_cpp_cannot_decode_alike_is_refused_in_one_line(changes, message):
    with pytest.raises(UserError) as caught:
        make_plan(None, {**GGUF, **changes})

    assert "llamacpp" in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_its_bindings_llama_cpp_is_refused_with_the_line_that_installs_them(monkeypatch):
    monkeypatch.setattr("methods.external.facts.find_spec", lambda name: None)

    with pytest.raises(UserError, match=r"llama.cpp is not installed; run: pip install 'treegraft-bench\[llamacpp\]'"):
        make_plan(None, GGUF)
