"""Synthetic rows: the few fields that a report reads are arguments, the rest follow from them."""

import json

import pytest

from harness.results import Row
from methods.core.generation import Round, Spans


def _row(method, question_id=1, decode_s=1.0, committed=10, **changes):
    defaults = {"clock": "wall", "pair": "toy", "task": "mini", "turn": 0, "repeat": 0, "seed": 0}
    place = {name: changes.get(name, default) for name, default in defaults.items()}
    baseline = method == "autoregressive"
    accepted = changes.pop("accepted", [0] * committed if baseline else [max(0, committed - 1)])
    peer = changes.pop("peer", False)
    content = {
        **place,
        "key": "/".join(map(str, (*place.values(), question_id, method))),
        "attempt": 1,
        "question_id": question_id,
        "method": method,
        "status": "ok",
        "verdict": "reference" if baseline else "identical",
        "prompt_tokens": 5,
        "token_ids": list(range(committed)),
        "committed": committed,
        "finish": "length",
        "rounds": None if peer else [Round(None, max(4, number), number, []) for number in accepted],
        "prefill_tokens": 1 if peer else 0,
        "decode_forwards": committed - 1 if peer else None,
        "prefill_s": 0.5,
        "decode_s": decode_s,
        "e2e_s": decode_s + 0.5,
        "spans": None if peer else Spans(0.1 * decode_s, 0.2 * decode_s, 0.0, 0.6 * decode_s, 0.1 * decode_s),
    }
    return Row(**{**content, **changes})


@pytest.fixture
def row():
    """Build a row of a method on a question."""
    return _row


@pytest.fixture
def failed():
    """Build a failed row."""

    def build(method, question_id=1, **changes):
        nothing = dict.fromkeys(("verdict", "finish", "rounds", "spans", "prefill_s", "decode_s", "e2e_s"))
        empty = {"status": "failed", "error": "out of memory", "committed": 0, "token_ids": [], **nothing}
        return _row(method, question_id, **changes).model_copy(update=empty)

    return build


@pytest.fixture
def run_folder(tmp_path):
    """Write rows, and a manifest where given, into the folder of a run."""

    def write(rows, manifest=None, tail=""):
        lines = "".join(row.model_dump_json() + "\n" for row in rows)
        (tmp_path / "rows.jsonl").write_text(lines + tail, encoding="utf-8")
        if manifest is not None:
            (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        return tmp_path

    return write
