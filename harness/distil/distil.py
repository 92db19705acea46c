"""`treegraft distill`: self-written text, training, the drafter's folder and its measurements."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch

from foundation.atomic_write import write_text_whole
from foundation.digests import file_digest
from foundation.errors import UserError
from foundation.progress import Bar
from harness.distil.agreement import hits, kept_answers, latencies, rates
from harness.distil.batched_generation import Writer
from harness.distil.dataset import Dataset
from harness.distil.model_card import model_card
from harness.distil.prompts import own_questions, task_prompts
from harness.distil.sequence_templates import TokenLimits
from harness.distil.settings import DistilSettings
from harness.distil.shards import Author, TextFolder
from harness.distil.student import limited_vocabulary, student_of, trained_state
from harness.distil.training import RECIPE, Progress, Trainer
from harness.models.distilled import WEIGHTS, Card, TargetIdentity, load_distilled, write_card, write_distilled
from harness.models.loading import LoadedPair, load_for
from harness.models.pair import Pair, get_pair
from harness.models.shared_layers import sharing_layers
from harness.records.provenance import versions
from methods.core.model import TreeModel

_HEAD_EXTRAS = ("final_logit_softcapping", "logit_scale", "logits_scaling")

TEXT = {"target", "prompts", "batch", "question_tokens", "answer_tokens", "article_tokens", "seed", "dtype"}
"""Settings that determine the text, beside its amount."""


def distil(settings: DistilSettings, bar: Bar) -> Card:
    """Distil a drafter, or continue where an earlier call stopped; return the card, as written to the folder.

    Raises:
        UserError: unusable input or environment.
    """
    pair = get_pair(settings.target).model_copy(update={"middle": None, "small": None})
    out = _out_folder(settings)
    questions = tuple(own_questions(settings.prompts, settings.data))
    loaded = load_for(pair, settings)
    target = loaded.models.target.model
    sharing_layers(target, settings.layers, "--layers")  # refuses wrong ones before hours of work
    _check_head(target, pair)
    prompts = task_prompts(settings, pair, loaded.models.tokenizer)
    work = _work_folder(settings, loaded)

    text = TextFolder(work / "text")
    writer = Writer(target, loaded.eos_ids | frozenset(loaded.models.tokenizer.all_special_ids))
    with bar("tokens written", settings.tokens) as advance:
        files = text.write(_author(settings, loaded, writer, questions), settings.tokens, advance)

    dataset = Dataset(files, elsewhere=settings.elsewhere)
    counts = dataset.counts(target.config.get_text_config().vocab_size)
    token_ids = limited_vocabulary(counts, settings.vocabulary, loaded.eos_ids)
    state = _trained(settings, loaded, dataset, token_ids, work, bar)
    whole = settings.vocabulary == 0
    card = Card(
        target=TargetIdentity(name=pair.name, **loaded.weights["target"]),
        licence=pair.licence,
        layers=settings.layers,
        vocabulary=0 if whole else len(token_ids),
        floor=_floor(counts, token_ids),
        recipe={**settings.model_dump(include=RECIPE), "dtype": settings.dtype or pair.dtype},
        text=_text_facts(settings, counts),
        figures={},
        versions=versions(),
    )
    card = write_distilled(out, state, token_ids[:0] if whole else token_ids, card)
    card = card.model_copy(update={"figures": _figures(settings, loaded, writer, prompts, out, work, bar)})
    write_card(out, card)
    write_text_whole(out / "README.md", model_card(card), "give another --out")
    return card


def _check_head(target: Any, pair: Pair) -> None:
    config = target.config.get_text_config()
    bent = [name for name in _HEAD_EXTRAS if getattr(config, name, None) not in (None, 1, 1.0)]
    if bent:
        raise UserError(f"pair {pair.name}: its logits are no plain product ({bent[0]}); distil another target")


def _out_folder(settings: DistilSettings) -> Path:
    folder = Path(settings.out)
    if any(path.exists() and not path.is_dir() for path in (folder, *folder.parents)):
        raise UserError(f"--out {folder}: stands where a file is; give another")
    return folder


def _work_folder(settings: DistilSettings, loaded: LoadedPair) -> Path:
    """Return the folder of unfinished work, after checking that the same settings wrote its text."""
    folder = Path(settings.work or f"{settings.out}-work")
    request = settings.model_dump(mode="json", include=TEXT)
    request |= {"weights": loaded.weights["target"]["sha256"], "prompts": _digests(settings)}
    file = folder / "asked.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not file.is_file():
            write_text_whole(file, json.dumps(request, indent=1) + "\n", "make room, or give another --work")
        earlier = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be used ({error}); give another --work") from error
    changed = [key for key in request if request[key] != earlier.get(key)]
    if changed:
        raise UserError(f"{folder}: holds text of another {', '.join(changed)}; give the same, or another --work")
    return folder


def _author(settings: DistilSettings, loaded: LoadedPair, writer: Writer, questions: tuple[str, ...]) -> Author:
    return Author(
        writer,
        loaded.models.tokenizer,
        loaded.pair.template,
        batch=settings.batch,
        seed=settings.seed,
        limits=TokenLimits(settings.question_tokens, settings.answer_tokens, settings.article_tokens),
        questions=questions,
    )


def _trained(
    settings: DistilSettings, loaded: LoadedPair, dataset: Dataset, token_ids: torch.Tensor, work: Path, bar: Bar
) -> dict[str, torch.Tensor]:
    target: Any = loaded.models.target.model
    student = student_of(target, settings.layers)
    head = target.get_output_embeddings().weight.detach()[token_ids]
    trainer = Trainer(student, head, dataset, settings, work)
    with bar("batches trained", trainer.steps) as advance:

        def report(progress: Progress) -> None:
            advance(progress.done, f"loss {progress.loss:.2f}, agreement {progress.agreement:.1%}")

        trainer.train(report)
    return trained_state(student)


def _floor(counts: Any, token_ids: torch.Tensor) -> float:
    """Return the log-probability that the next token is outside the limited head (Good, 1953).

    It is the share of the text's tokens outside the head, plus that of tokens seen once: about the mass of unseen ones.
    """
    outside = counts.sum() - counts[token_ids.numpy()].sum()
    return math.log(max(int(outside + (counts == 1).sum()), 1) / int(counts.sum()))


def _text_facts(settings: DistilSettings, counts: Any) -> dict[str, Any]:
    facts = settings.model_dump(include=TEXT - {"target", "dtype"})
    facts["prompts"] = _digests(settings)
    return {"source": "written by the target itself", "tokens": int(counts.sum()), **facts}


def _digests(settings: DistilSettings) -> list[str]:
    return [file_digest(Path(file)) for file in settings.prompts]


def _figures(
    settings: DistilSettings,
    loaded: LoadedPair,
    writer: Writer,
    prompts: dict[str, list[list[int]]],
    out: Path,
    work: Path,
    bar: Bar,
) -> dict[str, Any]:
    """Measure the drafter as written to the folder."""
    target = loaded.models.target
    shipped = load_distilled(target.model, loaded.weights["target"]["sha256"], out)
    drafter = TreeModel(shipped.eval().requires_grad_(False))
    counts: dict[str, dict[str, int]] = {}
    with bar("questions answered", sum(map(len, prompts.values()))) as advance:
        for task, own in prompts.items():
            answers = kept_answers(work / f"answers-{task}.json", writer, own, settings.max_new_tokens)
            counts[task] = hits(drafter, answers)
            advance(len(own), f"{task}: top-1 {rates(counts[task])['top1']:.1%}")
    overall = {key: sum(one[key] for one in counts.values()) for key in next(iter(counts.values()))}
    return {
        "questions": {"split": "eval", "limit": settings.limit, "max_new_tokens": settings.max_new_tokens},
        "agreement": {name: rates(one) for name, one in {**counts, "overall": overall}.items()},
        "latency": latencies(target, drafter),
        "mb": round((out / WEIGHTS).stat().st_size / 1e6, 1),
    }
