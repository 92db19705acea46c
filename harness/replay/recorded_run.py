"""A recorded run, with what drafting along its text needs: models, questions and prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import median

from foundation.errors import UserError
from foundation.registry import unknown_name
from harness.models import loading
from harness.models.loading import LoadedPair
from harness.models.prompting import prompt_digest
from harness.models.prompts import conversation, prompt_ids
from harness.records.manifest import read_manifest
from harness.records.rows import last_attempts, read_rows
from harness.records.schema import Row
from harness.run.workload import load_blocks
from methods.catalog import BASELINE, MethodSpec
from methods.core.model import TreeModel
from methods.method import Models
from tasks.question import Question


class NoOpTarget(TreeModel):
    """A target that counts tokens and runs no forward."""

    def prefill(self, tokens: Sequence[int]) -> None:
        """Count `tokens` as committed."""
        self.length += len(tokens)


class RecordedRun:
    """The folder of a run.

    Attributes:
        folder: where it lies.
        manifest: its manifest.
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
        self.config, self.pair, self.specs = self.manifest.config, self.manifest.pair, self.manifest.specs
        self.rows = last_attempts(read_rows(folder), folder)
        strangers = sorted({row.method for row in self.rows} - self.specs.keys())
        if strangers:
            names = ", ".join(strangers)
            raise UserError(f"{folder}: rows of method {names}, which its manifest does not know; restore the files")
        self._questions: dict[str, dict[int, Question]] = {}

    @cached_property
    def loaded(self) -> LoadedPair:
        """Its models and tokenizer; other weights than it ran with are refused."""
        loaded = loading.load_for(self.pair, self.config)
        for role, recorded in {"target": {}, **self.manifest.weights}.items():
            if role not in loaded.weights or loaded.weights[role]["sha256"] != recorded.get("sha256"):
                origin = recorded.get("origin", "of unknown origin")
                raise UserError(f"{self.folder}: its {role} had other weights ({origin}); restore them")
        return loaded

    @property
    def median_prompt(self) -> int:
        """Median tokens of its questions' first prompts, the context of T_tgt and T_mid."""
        prompts = {(row.task, row.question_id): row.prompt_tokens for row in self.rows if row.turn == 0}
        return int(median([tokens for tokens in prompts.values() if tokens] or [1]))

    def drafting_models(self, spec: MethodSpec) -> Models:
        """Return its models for drafting along recorded text: the target runs a prefill at most."""
        self.check_artifact(spec)
        models = self.loaded.models
        if spec.settings.estimate == "prefill":
            return models
        return replace(models, target=NoOpTarget(models.target.model, models.target.engine))

    def check_artifact(self, spec: MethodSpec) -> None:
        """Refuse a method whose artifact has changed since the run."""
        try:
            digest = spec.facts.artifact_digest(spec.settings)
        except UserError:
            digest = None
        if digest != spec.artifact_sha256:
            fault = "cannot be read" if digest is None else "has changed since the run"
            raise UserError(
                f"{self.folder}: method {spec.name!r}: its artifact {spec.settings.artifact} {fault}; restore it, or "
                "define a method of another name"
            )

    def spec(self, name: str) -> MethodSpec:
        """Return one of its methods by name.

        Raises:
            UserError: no such method.
        """
        if name not in self.specs:
            raise unknown_name("method of this run", name, self.specs)
        return self.specs[name]

    def prompt(self, row: Row) -> list[int]:
        """Return the prompt tokens of a row.

        Raises:
            UserError: data, template or tokenizer have changed since, or an earlier turn is missing.
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
        prompt = prompt_ids(tokenizer, self.pair.template, messages, self.config.template_date)
        if len(prompt) != row.prompt_tokens or row.prompt_sha256 not in (None, prompt_digest(prompt)):
            raise UserError(
                f"{self.folder}: the prompt of {place} has changed since; restore the data, chat template and "
                "tokenizer that it ran with"
            )
        return prompt

    def question(self, task: str, question_id: int) -> Question:
        """Return one of its questions.

        Raises:
            UserError: the data has changed since.
        """
        if task not in self._questions:
            blocks, data = load_blocks(self.config.model_copy(update={"tasks": [task]}))
            recorded = self.manifest.tasks.get(task)
            if recorded is None or data[task].sha256 != recorded.sha256:
                raise UserError(f"{task}: its questions have changed since the run; restore the data it ran on")
            self._questions[task] = {block.question.question_id: block.question for block in blocks}
        if question_id not in self._questions[task]:
            raise UserError(f"{self.folder}: the run asked no question {task}/{question_id}; restore its rows")
        return self._questions[task][question_id]
