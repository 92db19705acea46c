"""Self-written text on disk: one safetensors file a batch, written whole or not at all, continued where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from harness.distil.openings import Opening, Steering
from harness.distil.scripts import Frame, Limits, Part, article_script, frame_of, script_of
from harness.distil.writing import Writer, Written
from harness.errors import UserError


@dataclass(frozen=True, slots=True)
class Author:
    """A target that writes for its own drafter.

    Attributes:
        writer: batched generation.
        tokenizer: the target's.
        template: how the pair is prompted.
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
    limits: Limits = field(default_factory=Limits)
    questions: tuple[str, ...] = ()

    def write(self, number: int) -> tuple[str, list[Written]]:
        """Return the kind and the sequences of a batch; the same number gives the same openings and seeds."""
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
        """Return the files that hold the first `tokens` tokens, writing those that are not there yet.

        Args:
            author: who writes.
            tokens: how many at least; batches are whole.
            progress: told of each batch's tokens and kind.

        Raises:
            UserError: a file is damaged.
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
        scratch = file.with_suffix(".partial")
        save_file(
            {
                "lengths": torch.tensor([len(written.tokens) for written in batch], dtype=torch.int32),
                "tokens": torch.cat([written.tokens for written in batch]),
                "parts": torch.cat([written.parts for written in batch]),
                "hidden": torch.cat([written.hidden for written in batch]),
            },
            scratch,
            metadata={"kind": kind},
        )
        scratch.replace(file)


def _contents(file: Path) -> tuple[str, int]:
    """Return a batch's kind and tokens.

    Raises:
        UserError: the file is damaged.
    """
    try:
        with safe_open(file, framework="pt") as batch:
            return batch.metadata()["kind"], int(batch.get_slice("tokens").get_shape()[0])
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file}: damaged ({error}); delete it, it will be written again") from error
