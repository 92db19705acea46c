"""T_tgt and T_mid: what a verification and a middle step take, as schedulers are told; measured once a run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from hardware_profiles.profile import Profile
from harness.config import RunConfig
from harness.garbage import no_garbage_collection
from harness.loading import LoadedPair
from harness.pair import Pair
from harness.results import Latency
from methods.catalog import MethodSpec, load_family, resolve
from methods.core.generation import Generation
from methods.core.sampling import DecodingParams
from methods.method import PromptError
from methods.schedulers.scheduler import Latency as SchedulerLatency
from methods.settings import Settings

_ANSWERS = 3
_TOKENS = 32


def measured_latency(loaded: LoadedPair, prompt: Sequence[int], config: RunConfig) -> Latency | None:
    """Decode a prompt with every drafting step the middle's, three times after a first; return medians of mean times.

    Prefill is left out of both.

    Args:
        loaded: a pair with a middle drafter.
        prompt: token ids.
        config: the run's configuration.

    Returns:
        None where the prompt leaves target or middle no room to work in.
    """
    spec = _all_mid(loaded.pair, config)
    method = load_family(spec.family)(loaded.models, spec.settings)
    params = DecodingParams(min(_TOKENS, config.max_new_tokens))
    try:
        with no_garbage_collection():
            answers = [method.generate(prompt, params) for _ in range(1 + _ANSWERS)][1:]  # the first one warms up
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
    """Return T_tgt and T_mid of a run: as given, of its clock's profile, or measured, on the prompt of median length.

    One that cannot be measured on gives way to the nearest in length.

    Args:
        loaded: the pair.
        config: the run's configuration.
        profile: what its clock charges; None measures.
        prompts: the questions' first ones, token ids.

    Returns:
        None where no prompt can be measured on.
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


def told(latency: Latency | None) -> SchedulerLatency | None:
    """Return what schedulers are told of a run's latency."""
    return None if latency is None else SchedulerLatency(latency.target_ms, latency.middle_ms)


def profile_latency(profile: Profile, pair: Pair, config: RunConfig, context: int) -> Latency:
    """Return what a profile charges for a verification of a full tree and for a middle step on a full frontier.

    Args:
        profile: what things cost.
        pair: the run's.
        config: the run's, whose `width` and `budget` say what is full.
        context: tokens behind which both stand.

    Raises:
        UserError: the profile knows no middle.
    """
    return latency_with(_all_mid(pair, config).settings, profile, context)


def _all_mid(pair: Pair, config: RunConfig) -> MethodSpec:
    return resolve("all-mid", definitions={}, pair=pair.defaults, config=config.drafting, flags={})


def latency_with(settings: Settings, profile: Profile, context: int) -> Latency:
    """Return the same for the sizes of tree and frontier that some settings give.

    Raises:
        UserError: the profile knows no middle.
    """
    target_ms = profile.forward_ms("target", settings.budget + 1, context) + profile.costs.verify_ms
    middle_ms = profile.forward_ms("middle", settings.width, context) + profile.costs.middle_call_ms
    return Latency(target_ms=target_ms, middle_ms=middle_ms, source=f"profile {profile.name}")


def _verification_ms(answer: Generation) -> float:
    assert answer.spans is not None  # ours times its phases
    return 1e3 * answer.spans.verify_s / len(answer.rounds or [])


def _call_ms(answer: Generation) -> float:
    assert answer.spans is not None  # ours times its phases
    return 1e3 * answer.spans.middle_s / _calls(answer)


def _calls(answer: Generation) -> int:
    return sum(one.calls for one in answer.rounds or [])
