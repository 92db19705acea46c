"""How often a drafter's best tokens hold the target's greedy next token, and what it costs beside the target."""

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

from harness.distil.scripts import Part, Segment
from harness.distil.writing import Writer
from methods.core.model import TreeModel

TOPS = (1, 3, 10)
_BATCH = 40
_CONTEXT = 300
_REPEATS = 40


@dataclass(frozen=True, slots=True)
class Answer:
    """A target's greedy answer to a prompt.

    Attributes:
        prompt: token ids.
        tokens: token ids of the answer.
    """

    prompt: list[int]
    tokens: list[int]


def kept_answers(file: Path, writer: Writer, prompts: Sequence[Sequence[int]], limit: int) -> list[Answer]:
    """Return the target's greedy answers, from a file where an earlier call kept them.

    Args:
        file: JSON; written where it is missing or of other prompts.
        writer: the target's.
        prompts: token ids.
        limit: most tokens of an answer.
    """
    asked: dict[str, Any] = {"limit": limit, "prompts": [list(prompt) for prompt in prompts]}
    if file.is_file():
        with suppress(ValueError, KeyError, TypeError):
            known = json.loads(file.read_text(encoding="utf-8"))
            if known["asked"] == asked:
                return [Answer(*pair) for pair in zip(asked["prompts"], known["answers"], strict=True)]
    answers = greedy_answers(writer, prompts, limit)
    scratch = file.with_suffix(".partial")
    scratch.write_text(json.dumps({"asked": asked, "answers": [answer.tokens for answer in answers]}), encoding="utf-8")
    scratch.replace(file)
    return answers


def greedy_answers(writer: Writer, prompts: Sequence[Sequence[int]], limit: int) -> list[Answer]:
    """Return the target's greedy answers of at most `limit` tokens, in the prompts' order."""
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    found: dict[int, Answer] = {}
    for start in range(0, len(order), _BATCH):
        batch = order[start : start + _BATCH]
        scripts = [[Segment(Part.GIVEN, tuple(prompts[index])), Segment(Part.ANSWER, limit=limit)] for index in batch]
        for index, written in zip(batch, writer.write(scripts, seed=0, tail=0.0), strict=True):
            prompt = list(prompts[index])
            found[index] = Answer(prompt, written.tokens.tolist()[len(prompt) :])
    return [found[index] for index in range(len(prompts))]


@torch.inference_mode()
def hits(drafter: TreeModel, answers: Iterable[Answer]) -> dict[str, int]:
    """Count answer tokens, and those among the drafter's 1, 3 and 10 best given all tokens before them.

    Args:
        drafter: its own best next token of every position is compared with the one that stands there.
        answers: of the target.
    """
    counts = dict.fromkeys(("tokens", *(f"top{top}" for top in TOPS)), 0)
    for answer in answers:
        best = _best(drafter, [*answer.prompt, *answer.tokens[:-1]])[len(answer.prompt) - 1 :]
        right = best == torch.tensor(answer.tokens)[:, None]
        counts["tokens"] += len(answer.tokens)
        for top in TOPS:
            counts[f"top{top}"] += int(right[:, :top].any(1).sum())
    return counts


def _best(drafter: TreeModel, tokens: Sequence[int]) -> torch.Tensor:
    """Return the drafter's best next tokens behind each of `tokens`, [tokens, most of `TOPS`]."""
    best: list[torch.Tensor] = []
    drafter.begin(len(tokens))
    drafter.prefill_scored(tokens, lambda logits, start: best.append(logits.topk(max(TOPS)).indices.cpu()))
    return torch.cat(best)


def rates(counts: dict[str, int]) -> dict[str, float]:
    """Return shares of the tokens counted, rounded to a tenth of a percent."""
    return {f"top{top}": round(counts[f"top{top}"] / counts["tokens"], 3) for top in TOPS}


def latencies(target: TreeModel, drafter: TreeModel, sizes: Sequence[int] = (1, 16, 32)) -> dict[str, Any]:
    """Return median times in ms of forwards of so many tokens behind 300, and their ratio, taken in turns."""
    models = {"target": target, "drafter": drafter}
    for model in models.values():
        model.begin(_CONTEXT + max(sizes))
        model.prefill([0] * _CONTEXT)
    taken: dict[tuple[str, int], list[float]] = {(name, size): [] for name in models for size in sizes}
    for _ in range(_REPEATS):
        for size in sizes:
            for name, model in models.items():
                taken[name, size].append(_forward_ms(model, size))
    found: dict[str, Any] = {}
    for size in sizes:
        whole, own = median(taken["target", size]), median(taken["drafter", size])
        found[str(size)] = {
            "target_ms": round(whole, 1),
            "drafter_ms": round(own, 1),
            "ratio": round(float(median(np.divide(taken["drafter", size], taken["target", size]))), 3),
        }
    return found


def _forward_ms(model: TreeModel, size: int) -> float:
    model.synchronise()
    start = time.perf_counter()
    model.evaluate([0] * size, range(size), np.tri(size, dtype=np.bool_))
    model.synchronise()
    taken = 1e3 * (time.perf_counter() - start)
    model.commit([])
    return taken
