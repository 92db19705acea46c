"""What outside peers may be told: the keys of Hugging Face's generation config that make `generate` draft. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from methods.settings import Settings


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class LookupOptions(_Options):
    """`options` of a method of the family hf-generate; without any it is plain `generate`."""

    prompt_lookup_num_tokens: int | None = Field(default=None, ge=1, le=1024, strict=True)
    """Tokens copied from behind an n-gram that occurred before."""
    max_matching_ngram_size: int | None = Field(default=None, ge=1, le=64, strict=True)
    """Longest n-gram that is looked for."""


class AssistantOptions(_Options):
    """`options` of a method of the family hf-assisted; what is left out is Hugging Face's default."""

    num_assistant_tokens: int | None = Field(default=None, ge=1, le=1024, strict=True)
    """Tokens that the assistant drafts a round, at most."""
    num_assistant_tokens_schedule: Literal["constant", "heuristic_transient"] | None = None
    """Whether that number moves with what is accepted, anew in each answer."""
    assistant_confidence_threshold: float | None = Field(default=None, ge=0, le=1, strict=True)
    """The assistant stops drafting at a token that it holds less likely; 0 never does."""


def lookup_options(settings: Settings) -> LookupOptions:
    """Return the options of a method of the family hf-generate.

    Raises:
        UserError: an unknown option, or an unusable value.
    """
    return settings.options_as(LookupOptions, "hf-generate")


def assistant_options(settings: Settings) -> AssistantOptions:
    """Return the options of a method of the family hf-assisted.

    Raises:
        UserError: an unknown option, or an unusable value.
    """
    return settings.options_as(AssistantOptions, "hf-assisted")
