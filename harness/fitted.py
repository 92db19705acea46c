"""Says where artifacts are used for something else than they were fitted to. Imports no torch."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from harness.pair import Pair
from methods.catalog import MethodSpec
from methods.schedulers.artifact import fitted_elsewhere, load_artifact
from methods.schedulers.edge_artifact import load_edges

_LOG = logging.getLogger("treegraft")


def tell_fitted_elsewhere(pair: Pair, clock: str, methods: Sequence[MethodSpec]) -> None:
    """Say of each method whose artifact was fitted to another pair, clock or other drafting settings that it was."""
    for spec in methods:
        name = spec.settings.artifact
        if spec.artifact_sha256 is None or name is None:
            continue
        if spec.family == "calibrated":
            edges = load_edges(spec.settings)
            own = spec.settings.model_copy(update={"small": "ngram"})  # it has no other look-up
            fitted = edges.pair, edges.clock, edges.drafting
            difference = fitted_elsewhere(*fitted, pair.name, clock, own)
        else:
            artifact = load_artifact(name, spec.settings)
            fitted = artifact.pair, artifact.clock, artifact.drafting
            difference = fitted_elsewhere(*fitted, pair.name, clock, spec.settings)
        if difference is not None:
            _LOG.warning("method %s: its artifact %s was fitted %s", spec.name, name, difference)
