"""A recorded run, brought back far enough to draft on its text again: models, questions and prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import median

from harness import loading
from harness.asked import config_asked, methods_asked, pair_asked
from harness.errors import UserError
from harness.loading import LoadedPair
from harness.plan import load_blocks
from harness.prompts import conversation, prompt_ids
from harness.registry import unknown_name
from harness.results import Row, last_attempts, read_manifest, read_rows
from methods.catalog import BASELINE, MethodSpec, fitted_digest
from methods.core.model import TreeModel
from methods.method import Models
from tasks.question import Question


class _Unasked(TreeModel):
    """A target of which nothing is asked: it counts tokens and runs no forward."""

    def prefill(self, tokens: Sequence[int]) -> None:
        """Count `tokens` as committed."""
        self._committed(len(tokens))


class RecordedRun:
    """The folder of a run.

    Args:
        folder: where it lies.

    Attributes:
        folder: where it lies.
        manifest: what it was asked.
        config: its configuration.
        pair: its pair.
        specs: its methods by name.
        rows: last attempts.

    Raises:
        UserError: no run lies there, or its files are broken.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder)
        self.config = config_asked(self.manifest, folder)
        self.pair = pair_asked(self.manifest, folder)
        self.specs = methods_asked(self.manifest, folder)
        self.rows = last_attempts(read_rows(folder), folder)
        strangers = sorted({row.method for row in self.rows} - self.specs.keys())
        if strangers:
            names = ", ".join(strangers)
            raise UserError(f"{folder}: rows of method {names}, which its manifest does not know; restore the files")
        self._questions: dict[str, dict[int, Question]] = {}

    @cached_property
    def loaded(self) -> LoadedPair:
        """Its models and tokenizer.

        Raises:
            UserError: other weights than it ran with.
        """
        loaded = loading.load_as_asked(self.pair, self.config)
        for role, known in {"target": {}, **self.manifest.weights}.items():
            if role not in loaded.weights or loaded.weights[role]["sha256"] != known.get("sha256"):
                origin = known.get("origin", "of unknown origin")
                raise UserError(f"{self.folder}: its {role} had other weights ({origin}); restore them")
        return loaded

    @property
    def median_prompt(self) -> int:
        """The median of its questions' first prompts, in tokens: where schedulers are told T_tgt and T_mid."""
        prompts = {(row.task, row.question_id): row.prompt_tokens for row in self.rows if row.turn == 0}
        return int(median([tokens for tokens in prompts.values() if tokens] or [1]))

    def drafting_models(self, spec: MethodSpec) -> Models:
        """Return its models for a method that drafts along recorded text: the target runs a prefill at most.

        Raises:
            UserError: the method was fitted to be something else when the run was made.
        """
        self.check_artifact(spec)
        models = self.loaded.models
        return models if spec.settings.estimate == "prefill" else replace(models, target=_Unasked(models.target.model))

    def check_artifact(self, spec: MethodSpec) -> None:
        """Refuse a method that was fitted to be something else when the run was made.

        Raises:
            UserError: it was, or its artifact is gone.
        """
        try:
            found = fitted_digest(spec)
        except UserError:
            found = None
        if found != spec.artifact_sha256:
            fault = "cannot be read" if found is None else "has changed since the run"
            raise UserError(
                f"{self.folder}: method {spec.name!r}: its artifact {spec.settings.artifact} {fault}; restore it, or "
                "define a method of another name"
            )

    def spec(self, name: str) -> MethodSpec:
        """Return one of its methods.

        Raises:
            UserError: it ran none of that name.
        """
        if name not in self.specs:
            raise unknown_name("method of this run", name, self.specs)
        return self.specs[name]

    def prompt(self, row: Row) -> list[int]:
        """Return the prompt tokens of a row.

        Raises:
            UserError: the data has changed since, or an earlier turn is missing.
        """
        answers = {
            other.turn: other.token_ids
            for other in self.rows
            if other.method == BASELINE
            and other.status == "ok"
            and (other.task, other.question_id, other.repeat) == (row.task, row.question_id, row.repeat)
        }
        place = f"{row.task}/{row.question_id}/{row.turn}"
        if any(turn not in answers for turn in range(row.turn)):
            raise UserError(f"{self.folder}: {place} follows an answer that is not there; run the block again")
        tokenizer = self.loaded.models.tokenizer
        earlier = [tokenizer.decode(answers[turn], skip_special_tokens=True) for turn in range(row.turn)]
        messages = conversation(self.question(row.task, row.question_id).turns, earlier)
        prompt = prompt_ids(tokenizer, self.pair.template, messages)
        if len(prompt) != row.prompt_tokens:
            raise UserError(f"{self.folder}: the prompt of {place} has changed since; restore the data it ran on")
        return prompt

    def question(self, task: str, question_id: int) -> Question:
        """Return one of its questions.

        Raises:
            UserError: the data has changed since.
        """
        if task not in self._questions:
            blocks, data = load_blocks(self.config.model_copy(update={"tasks": [task]}))
            known = self.manifest.tasks.get(task)
            if known is None or data[task].sha256 != known.sha256:
                raise UserError(f"{task}: its questions have changed since the run; restore the data it ran on")
            self._questions[task] = {block.question.question_id: block.question for block in blocks}
        if question_id not in self._questions[task]:
            raise UserError(f"{self.folder}: the run asked no question {task}/{question_id}; restore its rows")
        return self._questions[task][question_id]
