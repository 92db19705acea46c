"""How often a drafter's best tokens contain the target's greedy next token, and its latency beside the target's."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from foundation.atomic_write import write_text_whole
from harness.distil.batched_generation import Writer
from harness.distil.sequence_templates import Part, Segment
from methods.core.model import TreeModel

TOPS = (1, 3, 10)
_BATCH = 40
_CONTEXT = 300
_REPEATS = 40


@dataclass(frozen=True, slots=True)
class GreedyAnswer:
    """A target's greedy answer to a prompt.

    Attributes:
        prompt: token ids.
        tokens: token ids of the answer.
    """

    prompt: list[int]
    tokens: list[int]


def kept_answers(file: Path, writer: Writer, prompts: Sequence[Sequence[int]], limit: int) -> list[GreedyAnswer]:
    """Return the target's greedy answers, from a file where an earlier call kept them.

    Args:
        file: JSON; written where missing or made for other prompts.
        writer: the target's.
        prompts: token ids.
        limit: most tokens of an answer.
    """
    request: dict[str, Any] = {"limit": limit, "prompts": [list(prompt) for prompt in prompts]}
    if file.is_file():
        with suppress(ValueError, KeyError, TypeError):
            kept = json.loads(file.read_text(encoding="utf-8"))
            if kept["asked"] == request:
                return [GreedyAnswer(*pair) for pair in zip(request["prompts"], kept["answers"], strict=True)]
    answers = decode_greedily(writer, prompts, limit)
    text = json.dumps({"asked": request, "answers": [answer.tokens for answer in answers]})
    write_text_whole(file, text, "make room and run the same again")
    return answers


def decode_greedily(writer: Writer, prompts: Sequence[Sequence[int]], limit: int) -> list[GreedyAnswer]:
    """Return the target's greedy answers of at most `limit` tokens, in the prompts' order."""
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    answers: dict[int, GreedyAnswer] = {}
    for start in range(0, len(order), _BATCH):
        batch = order[start : start + _BATCH]
        scripts = [[Segment(Part.GIVEN, tuple(prompts[index])), Segment(Part.ANSWER, limit=limit)] for index in batch]
        for index, written in zip(batch, writer.write(scripts, seed=0, tail=0.0), strict=True):
            prompt = list(prompts[index])
            answers[index] = GreedyAnswer(prompt, written.tokens.tolist()[len(prompt) :])
    return [answers[index] for index in range(len(prompts))]


@torch.inference_mode()
def hits(drafter: TreeModel, answers: Iterable[GreedyAnswer]) -> dict[str, int]:
    """Count the target's answer tokens, and those among the drafter's 1, 3 and 10 best given all tokens before them."""
    counts = dict.fromkeys(("tokens", *(f"top{top}" for top in TOPS)), 0)
    for answer in answers:
        best = _best(drafter, [*answer.prompt, *answer.tokens[:-1]])[len(answer.prompt) - 1 :]
        right = best == torch.tensor(answer.tokens)[:, None]
        counts["tokens"] += len(answer.tokens)
        for top in TOPS:
            counts[f"top{top}"] += int(right[:, :top].any(1).sum())
    return counts


def _best(drafter: TreeModel, tokens: Sequence[int]) -> torch.Tensor:
    """Return the drafter's best next tokens after each of `tokens`, [tokens, largest of `TOPS`]."""
    best: list[torch.Tensor] = []
    drafter.begin(len(tokens))
    drafter.prefill_scored(tokens, lambda logits, start: best.append(logits.topk(max(TOPS)).indices.cpu()))
    return torch.cat(best)


def rates(counts: dict[str, int]) -> dict[str, float]:
    """Return hits as shares of all tokens, rounded to a tenth of a percent."""
    return {f"top{top}": round(counts[f"top{top}"] / counts["tokens"], 3) for top in TOPS}


def latencies(target: TreeModel, drafter: TreeModel, sizes: Sequence[int] = (1, 16, 32)) -> dict[str, Any]:
    """Return median times in ms of forwards of `sizes` tokens after 300, interleaved, and their ratio."""
    models = {"target": target, "drafter": drafter}
    for model in models.values():
        model.begin(_CONTEXT + max(sizes))
        model.prefill([0] * _CONTEXT)
    taken: dict[tuple[str, int], list[float]] = {(name, size): [] for name in models for size in sizes}
    for _ in range(_REPEATS):
        for size in sizes:
            for name, model in models.items():
                taken[name, size].append(_forward_ms(model, size))
    return {
        str(size): {
            "target_ms": round(median(taken["target", size]), 1),
            "drafter_ms": round(median(taken["drafter", size]), 1),
            "ratio": round(float(median(np.divide(taken["drafter", size], taken["target", size]))), 3),
        }
        for size in sizes
    }


def _forward_ms(model: TreeModel, size: int) -> float:
    model.synchronise()
    start = time.perf_counter()
    model.evaluate([0] * size, range(size), np.tri(size, dtype=np.bool_))
    model.synchronise()
    taken = 1e3 * (time.perf_counter() - start)
    model.commit([])
    return taken
