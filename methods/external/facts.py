"""Facts of external baselines."""

from dataclasses import dataclass, replace
from importlib.util import find_spec

from foundation.errors import UserError
from methods.external.options import AssistantOptions, LookupOptions, NgramOptions
from methods.facts import MethodFacts
from methods.settings import Settings

_HUGGING_FACE = MethodFacts(visible_rounds=False, engine="hf", baseline="hf-generate")


@dataclass(frozen=True)
class _LlamaCppFacts(MethodFacts):
    """Facts of methods that llama.cpp decodes, through the bindings of an optional package."""

    def check(self, family: str, settings: Settings) -> None:
        """Raise UserError for settings that it cannot run with, and where the bindings are not installed."""
        super().check(family, settings)
        if find_spec("xllamacpp") is None:
            raise UserError("llama.cpp is not installed; run: pip install 'treegraft-bench[llamacpp]'")


_LLAMA_CPP = _LlamaCppFacts(visible_rounds=False, engine="llama.cpp", baseline="llamacpp", reads_gguf=True)

FACTS = {
    "hf-generate": replace(_HUGGING_FACE, options=LookupOptions),
    "hf-assisted": replace(_HUGGING_FACE, options=AssistantOptions, drafters=("middle",)),
    "llamacpp": _LLAMA_CPP,
    "llamacpp-ngram": replace(_LLAMA_CPP, options=NgramOptions),
}
"""By family: Hugging Face `generate`, plain or with prompt look-up; and with the middle drafter as its assistant;
llama.cpp, plain; and with its own n-gram drafts."""
