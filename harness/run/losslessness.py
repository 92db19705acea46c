"""Certifies losslessness: a method's tokens against the baseline's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from harness.records.verdicts import Verdict, worst
from methods.core.model import TreeModel
from methods.core.sampling import DecodingParams, Sampler

_TOLERANCE_ULPS = {torch.float32: 64, torch.bfloat16: 8, torch.float16: 8}
_MANTISSA_BITS = {torch.float32: 23, torch.bfloat16: 7, torch.float16: 10}


def certify(
    target: TreeModel,
    params: DecodingParams,
    prompt: Sequence[int],
    reference: Sequence[int],
    tokens: Sequence[int],
    flips: Sequence[tuple[int, int]] = (),
) -> Verdict:
    """Return how a method's committed `tokens` relate to the baseline's, the `reference`.

    Their first difference is explained by a teacher-forced one-token forward, which overwrites the target's cache. Of a
    method that followed the reference, each flip is: a position and its own draw; the worst verdict holds.
    """
    differences = list(flips)
    if list(reference) != list(tokens):
        shared = shared_tokens(reference, tokens)
        if shared == min(len(reference), len(tokens)):
            return "different"  # one answer is cut short, and rounding cannot do that
        differences = [(shared, tokens[shared])]
    return worst({_explained(target, params, prompt, reference, *difference) for difference in differences})


def shared_tokens(reference: Sequence[int], tokens: Sequence[int]) -> int:
    """Return how many leading tokens two answers share."""
    pairs = zip(reference, tokens, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _explained(
    target: TreeModel,
    params: DecodingParams,
    prompt: Sequence[int],
    reference: Sequence[int],
    position: int,
    token: int,
) -> Verdict:
    """Compare a token with the reference's at a position, in a teacher-forced one-token forward."""
    prefix = [*prompt, *reference[:position]]
    target.begin(len(prefix))
    target.prefill(prefix[:-1])
    logits = target.evaluate(prefix[-1:], [0], np.ones((1, 1), dtype=np.bool_))[0]
    if not 0 <= token < len(logits):
        return "different"  # no token at all
    return explain_difference(logits, params, prefix, position, reference[position], token)


def explain_difference(
    logits: torch.Tensor, params: DecodingParams, prefix: Sequence[int], position: int, ours: int, theirs: int
) -> Verdict:
    """Return whether rounding explains that `theirs` was drawn instead of `ours`.

    Args:
        logits: raw logits at the first difference, [vocabulary], in the target's dtype.
        params: of both decodings.
        prefix: every token before the difference.
        position: its output position.
        ours: the baseline's token.
        theirs: the method's token.
    """
    raw = logits.float()
    scores = Sampler(replace(params, top_k=0, top_p=1.0)).processed(raw, prefix).double()
    if not params.greedy:
        scores = scores + Sampler(params).noise(len(raw), position).to(scores.device)
    gap = abs(float(scores[ours] - scores[theirs])) * (params.temperature or 1.0)
    if gap == 0.0:
        return "tie"
    largest = max(abs(float(raw[ours])), abs(float(raw[theirs])))
    tolerance = _TOLERANCE_ULPS[logits.dtype] * _ulp(largest, _MANTISSA_BITS[logits.dtype])
    if gap <= tolerance:
        return "numeric"
    winner = ours if scores[ours] > scores[theirs] else theirs
    return "numeric" if _borderline(raw, params, prefix, winner, tolerance) else "different"


def _borderline(raw: torch.Tensor, params: DecodingParams, prefix: Sequence[int], token: int, tolerance: float) -> bool:
    """Return whether a change of `tolerance` in its logit moves a token into or out of the top-k or top-p set."""
    kept = []
    for nudge in (-tolerance, tolerance):
        nudged = raw.clone()
        nudged[token] += nudge
        kept.append(bool(Sampler(params).processed(nudged, prefix)[token].isfinite()))
    return kept[0] != kept[1]


def _ulp(value: float, mantissa_bits: int) -> float:
    """Return the distance between neighbouring floats at `value`."""
    return math.ldexp(1.0, math.frexp(value)[1] - 1 - mantissa_bits) if value else 0.0
