"""Self-written text on disk: one safetensors file a batch, written atomically, so that a stopped run continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open

from foundation.errors import UserError
from harness.distil.batched_generation import Writer, Written
from harness.distil.prompt_seeds import Opening, Steering
from harness.distil.sequence_templates import Frame, Part, TokenLimits, article_script, frame_of, script_of
from harness.models.tensor_file import write_tensors


@dataclass(frozen=True, slots=True)
class Author:
    """A target that writes the text of its own drafter.

    Attributes:
        writer: batched generation.
        tokenizer: the target's.
        template: the pair's prompt format.
        batch: sequences written at once.
        seed: of openings and draws.
        limits: of turns.
        questions: the user's own, answered in the first batches.
    """

    writer: Writer
    tokenizer: Any
    template: Literal["chat", "plain"]
    batch: int = 96
    seed: int = 0
    limits: TokenLimits = field(default_factory=TokenLimits)
    questions: tuple[str, ...] = ()

    def write(self, number: int) -> tuple[str, list[Written]]:
        """Return a batch's kind and sequences; the same number gives the same openings and seeds."""
        frame = frame_of(self.tokenizer, self.template)
        if own := self.questions[number * self.batch : (number + 1) * self.batch]:
            openings = [Opening("own", question, whole=True) for question in own]
            return "own", self._answered(openings, frame, seed=number)
        number -= -(-len(self.questions) // self.batch)
        steering = Steering(seed := self.seed * 1_000_003 + number)
        kind = steering.kind(number)
        requests = steering.article_requests(kind, self.batch)
        first: list[Written] = []
        articles = None
        if requests:
            scripts = [article_script(request, frame, self.tokenizer, self.limits) for request in requests]
            first = self.writer.write(scripts, seed + 500_000)
            articles = [self._article(written) for written in first]
        return kind, first + self._answered(steering.openings(kind, articles, self.batch), frame, seed)

    def _answered(self, openings: Sequence[Opening], frame: Frame, seed: int) -> list[Written]:
        scripts = [script_of(opening, frame, self.tokenizer, self.limits) for opening in openings]
        return self.writer.write(scripts, seed)

    def _article(self, written: Written) -> str:
        tokens = written.tokens[written.parts == int(Part.SAMPLED)].tolist()
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True)).strip()


class TextFolder:
    """Batches of self-written text in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, author: Author, tokens: int, progress: Callable[[int, str], None]) -> list[Path]:
        """Return the files of the first `tokens` tokens or more, in whole batches, writing missing ones.

        `progress` gets each batch's tokens and kind.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        held = 0
        files: list[Path] = []
        while held < tokens:
            file = self.folder / f"{len(files):05d}.safetensors"
            if not file.is_file():
                self._save(file, *author.write(len(files)))
            files.append(file)
            kind, count = _contents(file)
            held += count
            progress(count, kind)
        return files

    @staticmethod
    def _save(file: Path, kind: str, batch: Sequence[Written]) -> None:
        tensors = {
            "lengths": torch.tensor([len(written.tokens) for written in batch], dtype=torch.int32),
            "tokens": torch.cat([written.tokens for written in batch]),
            "parts": torch.cat([written.parts for written in batch]),
            "hidden": torch.cat([written.hidden for written in batch]),
        }
        write_tensors(file, tensors, "make room and run the same again", {"kind": kind})


def _contents(file: Path) -> tuple[str, int]:
    """Return a batch's kind and tokens."""
    try:
        with safe_open(file, framework="pt") as batch:
            return batch.metadata()["kind"], int(batch.get_slice("tokens").get_shape()[0])
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file}: damaged ({error}); delete it, it will be written again") from error
