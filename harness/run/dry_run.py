"""A dry run: the work of a plan, and its time from a measured forward."""

from __future__ import annotations

import json
from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.run.plan import Plan

_FORWARDS = 8


def one_token_seconds(plan: Plan) -> float:
    """Load the plan's pair and return the median time of a one-token target forward, in seconds."""
    import numpy as np

    from harness.models import loading

    loaded = loading.load_for(plan.pair, plan.config)
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


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield a plan as lines, with the longest possible time at the end."""
    config = plan.config
    for key, origin in sorted(plan.origins.items()):
        yield f"{key}: {_json(getattr(config, key))} ({origin})"
    for task, data in plan.data.items():
        yield f"{task}: {data.n} questions ({data.split}) from {data.source}: {data.origin}"
    for spec in plan.methods:
        origins = plan.method_origins[spec.name]
        given = (f"{key} {_json(getattr(spec.settings, key))} ({origin})" for key, origin in sorted(origins.items()))
        yield f"{spec.name}: {spec.family}; {', '.join(given) or 'defaults'}"
    seconds = one_token_seconds(plan)
    most = plan.answers * config.max_new_tokens * seconds
    yield (
        f"{plan.answers} answers of at most {config.max_new_tokens} tokens; a one-token forward takes "
        f"{seconds * 1e3:.1f} ms here, so about {most / 60:.0f} minutes at most, less what speculation saves"
    )


def _json(value: object) -> str:
    return json.dumps(value, default=str)
