"""`treegraft profile`: measures a profile, or this machine's deviation from one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from foundation.errors import UserError
from foundation.progress import Bar
from hardware_profiles.curve import Curve
from hardware_profiles.profile import NAME, Profile, get_profile, write_profile
from harness.models.pair import get_pair
from harness.profiling.profiler import Profiler
from harness.profiling.settings import ProfileSettings
from harness.profiling.texts import embedded_texts, random_texts

_TOLERANCE_PCT = 10.0
_TYPES = {"bf16": "bfloat16", "fp32": "float32"}


@dataclass(frozen=True, slots=True)
class Deviations:
    """A machine's deviations from a profile.

    Attributes:
        lines: one a role, for people.
        exit_code: 0 where the median deviation of every role is within a tenth, else 1.
    """

    lines: list[str]
    exit_code: int


def profile_pair(settings: ProfileSettings, bar: Bar) -> Profile:
    """Measure a pair on this machine and write its profile.

    Raises:
        UserError: unusable input or environment.
    """
    file = Path(settings.out)
    if file.suffix not in (".yaml", ".yml"):
        raise UserError(f"--out {file}: give a file that ends in .yaml")
    if not file.resolve().parent.is_dir():
        raise UserError(f"--out {file}: no such folder; make it first")
    if not re.match(NAME, file.stem):
        raise UserError(f"--out {file}: a profile is called like its file; use small letters, digits and - only")
    if file.is_dir() or not os.access(file if file.exists() else file.resolve().parent, os.W_OK):
        raise UserError(f"--out {file}: cannot be written; give another --out")
    if file.exists():
        _refuse_other_file(file)
    profile = _measured(settings, file.stem, bar)
    write_profile(profile, file)
    return profile


def _refuse_other_file(file: Path) -> None:
    try:
        get_profile(str(file))
    except UserError as error:
        raise UserError(f"--out {file}: is there and no profile ({error}); give another --out, or remove it") from error


def check_profile(settings: ProfileSettings, bar: Bar) -> Deviations:
    """Measure a pair on this machine, with the profile's engine, and compare it point by point of the profile's grid.

    Raises:
        UserError: unusable input or environment, or a profile of another pair.
    """
    known = get_profile(settings.out)
    pair = get_pair(settings.pair)
    if known.pair != pair.name:
        raise UserError(f"{settings.out}: a profile of pair {known.pair}; give --pair {known.pair}")
    if known.dtype in _TYPES.values() and known.dtype != _TYPES[settings.dtype or pair.dtype]:
        raise UserError(f"{settings.out}: a profile of forwards in {known.dtype}; give --dtype of the same")
    if known.engine != "unknown":
        if settings.engine not in ("auto", known.engine):
            raise UserError(
                f"{settings.out}: a profile of engine {known.engine}; give --engine {known.engine}, or auto"
            )
        settings = settings.model_copy(update={"engine": known.engine})
    now = _measured(settings, known.name, bar)
    lines, worst = [], 0.0
    if "random" in (known.weights, now.weights):
        lines.append(f"weights: {known.weights} in the profile, {now.weights} now; times do not depend on them")
    for role, curve in now.forwards.items():
        if role not in known.forwards:
            continue
        assert isinstance(curve, Curve)  # measured profiles hold curves
        ratios = [
            known.forward_ms(role, tokens, context) / ms
            for context, row in zip(curve.contexts, curve.ms, strict=True)
            for tokens, ms in zip(curve.tokens, row, strict=True)
        ]
        off = [100 * abs(ratio - 1) for ratio in ratios]
        worst = max(worst, median(off))
        lines.append(
            f"{role}: the profile says {median(ratios):.2f} times what this machine takes (median of {len(ratios)} "
            f"points); off by {median(off):.1f}% (median), {max(off):.1f}% (worst)"
        )
    return Deviations(lines, int(worst > _TOLERANCE_PCT))


def _measured(settings: ProfileSettings, name: str, bar: Bar) -> Profile:
    from harness.models.loading import load_for

    if settings.random_weights:
        return _measured_without_weights(settings, name, bar)
    loaded = load_for(get_pair(settings.pair), settings)
    return Profiler(loaded, embedded_texts(loaded), seed=settings.seed, repeats=settings.repeats).measure(name, bar)


def _measured_without_weights(settings: ProfileSettings, name: str, bar: Bar) -> Profile:
    from harness.models.loading import set_threads
    from harness.models.random_weights import random_pair

    pair = get_pair(settings.pair)
    set_threads(settings)
    loaded = random_pair(
        pair,
        dtype=settings.dtype or pair.dtype,
        device=settings.device,
        seed=settings.seed,
        engine=settings.engine,
        trust_remote_code=settings.trust_remote_code,
    )
    models = (loaded.models.target, loaded.models.middle)
    texts = random_texts(min(model.vocab_size for model in models if model is not None), settings.seed)
    profile = Profiler(loaded, texts, seed=settings.seed, repeats=settings.repeats).measure(name, bar)
    sources = {role: facts["origin"] for role, facts in loaded.weights.items()}
    costs = "answers along random tokens in which phrases come back; acceptance was not measured"
    return profile.model_copy(
        update={
            "about": f"shapes of {pair.name} with random weights",
            "weights": "random",
            "sources": {**profile.sources, **sources, "costs": costs},
        }
    )
