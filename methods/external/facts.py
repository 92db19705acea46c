"""Facts of external baselines."""

from methods.external.options import AssistantOptions, LookupOptions
from methods.facts import MethodFacts

FACTS = {
    "hf-generate": MethodFacts(options=LookupOptions, visible_rounds=False),
    "hf-assisted": MethodFacts(drafters=("middle",), options=AssistantOptions, visible_rounds=False),
}
"""By family: Hugging Face `generate`, plain or with prompt look-up; and with the middle drafter as its assistant."""
