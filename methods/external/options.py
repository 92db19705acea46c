"""Options of external baselines, in their engines' own words: what makes `generate` or llama.cpp draft."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from foundation.strict_model import StrictModel


class LookupOptions(StrictModel):
    """`options` of the family hf-generate; without any it is plain `generate`."""

    prompt_lookup_num_tokens: int | None = Field(default=None, ge=1, le=1024, strict=True)
    """Tokens copied from behind an earlier occurrence of an n-gram."""
    max_matching_ngram_size: int | None = Field(default=None, ge=1, le=64, strict=True)
    """Longest n-gram matched."""
    cache_implementation: Literal["static"] | None = None
    """`static`: KV buffers that never grow, which on a GPU `generate` compiles for."""

    @model_validator(mode="after")
    def _static_rows_are_never_dropped(self) -> Self:
        if self.cache_implementation == "static" and self.prompt_lookup_num_tokens is not None:
            raise ValueError(
                "cache_implementation: static cannot drop rejected drafts; leave out prompt_lookup_num_tokens"
            )
        return self


class AssistantOptions(StrictModel):
    """`options` of the family hf-assisted; the defaults are Hugging Face's."""

    num_assistant_tokens: int | None = Field(default=None, ge=1, le=1024, strict=True)
    """Most tokens that the assistant drafts a round."""
    num_assistant_tokens_schedule: Literal["constant", "heuristic_transient"] | None = None
    """Whether that number adapts to acceptance, anew in each answer."""
    assistant_confidence_threshold: float | None = Field(default=None, ge=0, le=1, strict=True)
    """The assistant stops drafting at a token of lower probability; 0 never does."""


class NgramOptions(StrictModel):
    """`options` of the family llamacpp-ngram; what is left out is llama.cpp's default."""

    type: Literal["ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"] = "ngram-simple"
    """How it looks up drafts, as llama-server's `--spec-type` names it."""
    size_n: int | None = Field(default=None, ge=1, le=1024, strict=True)
    """Tokens that must recur (12)."""
    size_m: int | None = Field(default=None, ge=1, le=1024, strict=True)
    """Most tokens copied from behind them (48)."""
    min_hits: int | None = Field(default=None, ge=1, le=65535, strict=True)
    """How often they must have occurred, in types with a map (1)."""

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that are given."""
        return self.model_dump(exclude={"type"}, exclude_none=True)

    @model_validator(mode="after")
    def _sizes_are_of_types_that_have_them(self) -> Self:
        if self.sizes and self.type in ("ngram-mod", "ngram-cache"):
            raise ValueError(f"{self.type} has no {', '.join(self.sizes)}; leave that out")
        return self
