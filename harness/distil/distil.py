"""`treegraft distill`: self-written text, training, the drafter's folder, and what was measured of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch

from harness.distil.agreement import hits, kept_answers, latencies, rates
from harness.distil.lessons import Lessons
from harness.distil.model_card import model_card
from harness.distil.prompts import own_questions, task_prompts
from harness.distil.scripts import Limits
from harness.distil.settings import DistilSettings
from harness.distil.student import limited_vocabulary, student_of, trained_state
from harness.distil.text import Author, TextFolder
from harness.distil.training import RECIPE, Progress, Trainer
from harness.distil.writing import Writer
from harness.distilled import WEIGHTS, Card, Origin, distilled, write_card, write_distilled
from harness.errors import UserError
from harness.flags import Bar
from harness.loading import LoadedPair, load_as_asked
from harness.pair import Pair, get_pair
from harness.provenance import file_digest, versions
from harness.shared_layers import sharing_layers
from methods.core.model import TreeModel

_HEAD_EXTRAS = ("final_logit_softcapping", "logit_scale", "logits_scaling")

TEXT = {"target", "prompts", "batch", "question_tokens", "answer_tokens", "article_tokens", "seed", "dtype"}
"""The settings that decide about the text, beside its amount."""


def distil(settings: DistilSettings, bar: Bar) -> Card:
    """Distil a drafter, or continue where an earlier call stopped.

    Args:
        settings: what is asked.
        bar: shows how far a stage is.

    Returns:
        The card, as it stands in the folder.

    Raises:
        UserError: unusable input or environment.
    """
    pair = get_pair(settings.target).model_copy(update={"middle": None, "small": None})
    out = _out_folder(settings)
    questions = tuple(own_questions(settings.prompts, settings.data))
    loaded = load_as_asked(pair, settings)
    target = loaded.models.target.model
    sharing_layers(target, settings.layers, "--layers")  # refuses them before hours of work
    _check_head(target, pair)
    asked = task_prompts(settings, pair, loaded.models.tokenizer)
    work = _work_folder(settings, loaded)

    text = TextFolder(work / "text")
    writer = Writer(target, loaded.eos_ids | frozenset(loaded.models.tokenizer.all_special_ids))
    with bar("tokens written", settings.tokens) as advance:
        files = text.write(_author(settings, loaded, writer, questions), settings.tokens, advance)

    lessons = Lessons(files, elsewhere=settings.elsewhere)
    counts = lessons.counts(target.config.get_text_config().vocab_size)
    token_ids = limited_vocabulary(counts, settings.vocabulary, loaded.eos_ids)
    state = _trained(settings, loaded, lessons, token_ids, work, bar)
    whole = settings.vocabulary == 0
    card = Card(
        target=Origin(name=pair.name, **loaded.weights["target"]),
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
    card = card.model_copy(update={"figures": _figures(settings, loaded, writer, asked, out, work, bar)})
    write_card(out, card)
    (out / "README.md").write_text(model_card(card), encoding="utf-8")
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
    """Return the folder of unfinished work, after making sure that its text was asked for in the same way."""
    folder = Path(settings.work or f"{settings.out}-work")
    asked = settings.model_dump(mode="json", include=TEXT)
    asked |= {"weights": loaded.weights["target"]["sha256"], "prompts": _digests(settings)}
    file = folder / "asked.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not file.is_file():
            file.write_text(json.dumps(asked, indent=1) + "\n", encoding="utf-8")
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be used ({error}); give another --work") from error
    changed = [key for key in asked if asked[key] != known.get(key)]
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
        limits=Limits(settings.question_tokens, settings.answer_tokens, settings.article_tokens),
        questions=questions,
    )


def _trained(
    settings: DistilSettings, loaded: LoadedPair, lessons: Lessons, token_ids: torch.Tensor, work: Path, bar: Bar
) -> dict[str, torch.Tensor]:
    target: Any = loaded.models.target.model
    student = student_of(target, settings.layers)
    head = target.get_output_embeddings().weight.detach()[token_ids]
    trainer = Trainer(student, head, lessons, settings, work)
    with bar("batches trained", trainer.steps) as advance:

        def tell(progress: Progress) -> None:
            advance(progress.done, f"loss {progress.loss:.2f}, agreement {progress.agreement:.1%}")

        trainer.train(tell)
    return trained_state(student)


def _floor(counts: Any, token_ids: torch.Tensor) -> float:
    """Return the log of the chance that the next token is one that the head does not know.

    That is the share of the text's tokens outside the head, and of those never seen yet, which is about the
    share of tokens seen once (Good, 1953).
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
    asked: dict[str, list[list[int]]],
    out: Path,
    work: Path,
    bar: Bar,
) -> dict[str, Any]:
    """Measure the drafter as it lies in the folder."""
    target = loaded.models.target
    shipped = distilled(target.model, loaded.weights["target"]["sha256"], out)
    drafter = TreeModel(shipped.eval().requires_grad_(False))
    found: dict[str, dict[str, int]] = {}
    with bar("questions answered", sum(map(len, asked.values()))) as advance:
        for task, prompts in asked.items():
            answers = kept_answers(work / f"answers-{task}.json", writer, prompts, settings.max_new_tokens)
            found[task] = hits(drafter, answers)
            advance(len(prompts), f"{task}: top-1 {rates(found[task])['top1']:.1%}")
    overall = {key: sum(counts[key] for counts in found.values()) for key in next(iter(found.values()))}
    return {
        "questions": {"split": "eval", "limit": settings.limit, "max_new_tokens": settings.max_new_tokens},
        "agreement": {name: rates(counts) for name, counts in {**found, "overall": overall}.items()},
        "latency": latencies(target, drafter),
        "mb": round((out / WEIGHTS).stat().st_size / 1e6, 1),
    }
