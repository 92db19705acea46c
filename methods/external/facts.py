"""Facts of external baselines."""

from dataclasses import replace

from methods.external.options import AssistantOptions, LookupOptions
from methods.facts import MethodFacts

_HUGGING_FACE = MethodFacts(visible_rounds=False, engine="hf", baseline="hf-generate")

FACTS = {
    "hf-generate": replace(_HUGGING_FACE, options=LookupOptions),
    "hf-assisted": replace(_HUGGING_FACE, options=AssistantOptions, drafters=("middle",)),
}
"""By family: Hugging Face `generate`, plain or with prompt look-up; and with the middle drafter as its assistant."""
