"""How long a run may take: measured, not guessed."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.run import Plan

_FORWARDS = 8


def one_token_seconds(plan: Plan) -> float:
    """Load the plan's pair and return the median time of a one-token target forward, in seconds."""
    import numpy as np

    from harness import loading
    from harness.run import set_threads

    set_threads(plan.config)
    pair, config = plan.pair, plan.config
    loaded = loading.load_pair(
        pair, dtype=config.dtype or pair.dtype, device=config.device, trust_remote_code=config.trust_remote_code
    )
    target = loaded.models.target
    target.begin(_FORWARDS)
    taken = []
    for _ in range(_FORWARDS):
        started = perf_counter()
        target.evaluate([0], [0], np.ones((1, 1), dtype=np.bool_))
        target.synchronise()
        taken.append(perf_counter() - started)
        target.commit([0])
    return median(taken)
