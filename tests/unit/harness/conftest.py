"""Rows and manifests without a model."""

import pytest

from harness.records.manifest import Manifest
from harness.records.schema import Row, Start, TaskData
from methods.core.generation import Forward, Round, Spans


@pytest.fixture
def row():
    """Build a row; keyword arguments replace its fields."""

    def build(number=1, **changes):
        content = {
            "key": f"{number:032x}",
            "attempt": 1,
            "pair": "toy",
            "task": "nq",
            "question_id": number,
            "turn": 0,
            "method": "autoregressive",
            "seed": 0,
            "repeat": 0,
            "clock": "wall",
            "status": "ok",
            "verdict": "reference",
            "prompt_tokens": 3,
            "token_ids": [5, 6, 7],
            "committed": 3,
            "finish": "length",
            "rounds": [Round(None, 0, 0, [Forward("target", None, 1, 2)]) for _ in range(3)],
            "prefill": [Forward("target", None, 2, 0)],
            "prefill_s": 0.25,
            "decode_s": 0.5,
            "e2e_s": 0.75,
            "spans": Spans(0.0, 0.0, 0.0, 0.4, 0.1),
            "telemetry": {"others_cores": 0.0, "note": "line\u2028feed\x85é"},
        }
        return Row(**{**content, **changes})

    return build


@pytest.fixture
def manifest():
    """Build a manifest; keyword arguments replace keys of its configuration."""

    def build(**config):
        return Manifest(
            config={"pair": "toy", "seed": 0, "methods": ["autoregressive"], "out": None, "threads": 1, **config},
            pair={"name": "toy", "target": {"toy": {"seed": 0}}},
            weights={"target": {"origin": "toy", "sha256": "00"}},
            methods=[{"name": "autoregressive", "family": "autoregressive", "settings": {}}],
            tasks={"nq": TaskData(source="embedded", origin="here", split="eval", sha256="00", n=1)},
            starts=[Start(at="2000-01-01T00:00:00", command=[], git={}, versions={}, machine={})],
        )

    return build
