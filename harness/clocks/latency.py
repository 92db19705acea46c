"""Verify latency and draft latency, T_tgt and T_mid: given, measured once a run, or from a profile."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from foundation.gc_control import no_garbage_collection
from hardware_profiles.profile import Profile
from harness.config.run_config import RunConfig
from harness.models.loading import LoadedPair
from harness.models.pair import Pair
from methods.catalog import MethodSpec, load_family, resolve
from methods.core.generation import Generation
from methods.core.sampling import DecodingParams
from methods.latency import Latency
from methods.method import PromptError
from methods.settings import Settings

_ANSWERS = 3
_TOKENS = 32


def measured_latency(loaded: LoadedPair, prompt: Sequence[int], config: RunConfig) -> Latency | None:
    """Decode a prompt with `all-mid` four times, the first to warm up; return medians of mean times without prefill.

    None where the prompt leaves target or middle no room to decode.
    """
    spec = _all_mid(loaded.pair, config)
    method = load_family(spec.family)(loaded.models, spec.settings)
    params = DecodingParams(min(_TOKENS, config.max_new_tokens))
    try:
        with no_garbage_collection():
            answers = [method.generate(prompt, params) for _ in range(1 + _ANSWERS)][1:]
    except PromptError:  # its rows will say so
        return None
    if not all(map(_calls, answers)):
        return None
    return Latency(
        target_ms=round(median(map(_verification_ms, answers)), 3),
        middle_ms=round(median(map(_call_ms, answers)), 3),
        source=f"measured on a prompt of {len(prompt)} tokens",
    )


def run_latency(
    loaded: LoadedPair, config: RunConfig, profile: Profile | None, prompts: Sequence[Sequence[int]]
) -> Latency | None:
    """Return T_tgt and T_mid of a run: given, from its clock's profile, or measured on the prompt of median length.

    A prompt without room gives way to the next nearest in length; None where none has room.

    Args:
        loaded: the pair.
        config: the run's configuration.
        profile: the clock's; None measures.
        prompts: token ids of each question's first prompt.
    """
    if config.latency is not None:
        target_ms, middle_ms = config.latency
        return Latency(target_ms=target_ms, middle_ms=middle_ms, source="given by latency")
    middle = median(map(len, prompts)) if prompts else 1
    if profile is not None:
        return profile_latency(profile, loaded.pair, config, int(middle))
    for prompt in sorted(prompts, key=lambda prompt: abs(len(prompt) - middle)):
        latency = measured_latency(loaded, prompt, config)
        if latency is not None:
            return latency
    return None


def profile_latency(profile: Profile, pair: Pair, config: RunConfig, context: int) -> Latency:
    """Return a profile's times of verifying a full tree and of a middle step on a full frontier after a context."""
    return latency_with(_all_mid(pair, config).settings, profile, context)


def _all_mid(pair: Pair, config: RunConfig) -> MethodSpec:
    return resolve("all-mid", pair=pair.defaults, config=config.drafting)


def latency_with(settings: Settings, profile: Profile, context: int) -> Latency:
    """Return the same for the tree and frontier sizes of given settings."""
    target_ms = profile.forward_ms("target", settings.budget + 1, context) + profile.costs.verify_ms
    middle_ms = profile.forward_ms("middle", settings.width, context) + profile.costs.middle_call_ms
    return Latency(target_ms=target_ms, middle_ms=middle_ms, source=f"profile {profile.name}")


def _verification_ms(answer: Generation) -> float:
    assert answer.spans is not None  # our methods time their phases
    return 1e3 * answer.spans.verify_s / len(answer.rounds or [])


def _call_ms(answer: Generation) -> float:
    assert answer.spans is not None  # our methods time their phases
    return 1e3 * answer.spans.middle_s / _calls(answer)


def _calls(answer: Generation) -> int:
    return sum(one.calls for one in answer.rounds or [])
