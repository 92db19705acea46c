"""Runs blocks: every method on the same prompt, interleaved, certified, as rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from foundation.errors import UserError
from foundation.gc_control import no_garbage_collection
from foundation.strict_model import first_fault
from hardware_profiles.profile import Profile
from hardware_profiles.reading import Reading
from hardware_profiles.watch import Watch
from harness.clocks.cost_model import retimed
from harness.config.run_config import RunConfig
from harness.models.gpus import gpu_uuids
from harness.models.loading import LoadedPair
from harness.models.prompting import prompt_digest
from harness.models.prompts import conversation, prompt_ids
from harness.records.schema import DECODING_KEYS, Row, TaskData
from harness.records.verdicts import Verdict
from harness.run.losslessness import certify, shared_tokens
from harness.run.workload import Block, method_order
from methods.catalog import BASELINE, MethodSpec
from methods.core.generation import Generation
from methods.core.sampling import DecodingParams
from methods.latency import Latency
from methods.method import Method, PromptError

_WARM_UP_TOKENS = 32
_WARM_UP_MOST = 5
_WARM_UP_STEADY = 0.1  # relative difference of two steady times


@dataclass(frozen=True, slots=True)
class Attempt:
    """One method's attempt at one prompt, before it is certified."""

    generation: Generation | None
    error: str | None
    reading: Reading


class BlockRunner:
    """Turns blocks into rows.

    Args:
        loaded: the pair.
        specs: the run's methods, the baseline first.
        make: makes a method of the run.
        config: the run's configuration.
        data: where each task's questions came from.
        profile: the clock's; None measures.
    """

    def __init__(
        self,
        loaded: LoadedPair,
        specs: Sequence[MethodSpec],
        make: Callable[[MethodSpec], Method],
        config: RunConfig,
        data: Mapping[str, TaskData],
        profile: Profile | None = None,
    ) -> None:
        self._loaded = loaded
        self._specs = {spec.name: spec for spec in specs}
        self._make = make
        self._methods = {spec.name: make(spec) for spec in specs}
        self._remembering: dict[tuple[str, int], Method] = {}
        self._config = config
        self._data = data
        self._profile = profile
        self._watch = Watch(gpu_uuids(loaded.models))

    def warm_up(self, block: Block) -> None:
        """Run every method on a block's first prompt until its time is steady."""
        try:
            prompt = self._prompt(block, [])
        except PromptError:
            return  # its rows will say so
        params = self._params(block, 0, min(_WARM_UP_TOKENS, self._config.max_new_tokens))
        for method in self._methods.values():
            last = float("inf")
            for _ in range(_WARM_UP_MOST):
                answer = self._answer(method, prompt, params)
                if answer.generation is None:
                    break  # its row will say so
                seconds = answer.generation.e2e_s
                if abs(seconds - last) <= _WARM_UP_STEADY * seconds:
                    break
                last = seconds

    def first_prompts(self, blocks: Sequence[Block]) -> Iterator[list[int]]:
        """Yield the tokens of each question's first prompt, where it can be built."""
        for block in blocks:
            with suppress(PromptError):
                yield self._prompt(block, [])

    def set_latency(self, latency: Latency | None) -> None:
        """Give every method T_tgt and T_mid, for its scheduler."""
        for method in self._methods.values():
            method.latency = latency

    def run_block(self, block: Block, attempt: int) -> list[Row]:
        """Return the rows of a block: each turn, every method in a random order.

        For every method, the second turn follows the baseline's first answer.
        """
        rows: list[Row] = []
        answers: list[str] = []
        for turn in range(len(block.question.turns)):
            try:
                if len(answers) < turn:
                    raise PromptError(f"turn {turn - 1} of the baseline failed")
                prompt = self._prompt(block, answers)
            except PromptError as problem:
                failed = (self._failed(block, turn, name, attempt, None, str(problem)) for name in self._specs)
                rows += map(self._clocked, failed)
                continue
            params = self._params(block, turn, self._config.max_new_tokens)
            if self._config.follow == "reference":
                params = self._following(prompt, params)
            taken = {
                name: self._answer(self._method(name, block.repeat), prompt, params)
                for name in method_order(list(self._specs), self._config.seed, block, turn)
            }
            baseline = taken[BASELINE].generation
            rows += [
                self._clocked(self._row(block, turn, name, attempt, prompt, params, taken[name], baseline))
                for name in taken
            ]
            if baseline is not None:
                answers.append(self._loaded.models.tokenizer.decode(baseline.token_ids, skip_special_tokens=True))
        return rows

    def _method(self, name: str, repeat: int) -> Method:
        """Return a method as it stands in a repeat.

        One that remembers the run is made anew for each: it has learnt neither in the warm-up nor in another repeat.
        """
        if self._specs[name].facts.memory == "question":
            return self._methods[name]
        if (name, repeat) not in self._remembering:
            made = self._make(self._specs[name])
            made.latency = self._methods[name].latency
            self._remembering[name, repeat] = made
        return self._remembering[name, repeat]

    def _following(self, prompt: Sequence[int], params: DecodingParams) -> DecodingParams:
        """Return parameters that follow the baseline's tokens.

        They are decoded here, untimed, so that the baseline too can be timed at its own place in the order.
        """
        reference = self._answer(self._methods[BASELINE], prompt, params).generation
        return params if reference is None else replace(params, reference=tuple(reference.token_ids))

    def _prompt(self, block: Block, answers: Sequence[str]) -> list[int]:
        messages = conversation(block.question.turns, answers)
        tokenizer, template = self._loaded.models.tokenizer, self._loaded.pair.template
        return prompt_ids(tokenizer, template, messages, self._config.template_date)

    def _params(self, block: Block, turn: int, max_new_tokens: int) -> DecodingParams:
        config = self._config
        return DecodingParams(
            max_new_tokens=max_new_tokens,
            temperature=config.temperature,
            top_p=config.top_p,
            top_k=config.top_k,
            repetition_penalty=config.repetition_penalty,
            stop=tuple(config.stop),
            eos_ids=self._loaded.eos_ids,
            draw_key=(config.seed, block.task, block.question.question_id, turn, block.repeat),
        )

    def _answer(self, method: Method, prompt: Sequence[int], params: DecodingParams) -> Attempt:
        with no_garbage_collection():
            self._watch.start()
            generation, error = None, None
            try:
                generation = _checked(method.generate(prompt, params))
            except PromptError as problem:
                error = str(problem)
            except Exception as problem:  # noqa: BLE001 - any method may be a plug-in; its failure is a row, not the run's end
                error = f"{type(problem).__name__}: {' '.join(str(problem).split())}"
            reading = self._watch.stop()
        return Attempt(generation, error, reading)

    def _row(
        self,
        block: Block,
        turn: int,
        name: str,
        attempt: int,
        prompt: Sequence[int],
        params: DecodingParams,
        answer: Attempt,
        baseline: Generation | None,
    ) -> Row:
        generation = answer.generation
        if generation is None:
            return self._failed(block, turn, name, attempt, prompt, answer.error or "no answer")
        if baseline is None:
            return self._failed(block, turn, name, attempt, prompt, "the baseline failed, so nothing can be compared")
        identity = self._identity(block, turn, name, attempt, prompt)
        try:
            return self._answered(identity, prompt, params, generation, answer.reading, baseline)
        except ValidationError as error:
            reason = f"generate gave what no row can hold: {first_fault(error).line()}"
            return Row(**identity, status="failed", error=reason)

    def _answered(
        self,
        identity: dict[str, Any],
        prompt: Sequence[int],
        params: DecodingParams,
        generation: Generation,
        reading: Reading,
        baseline: Generation,
    ) -> Row:
        telemetry = dict(reading.telemetry)
        if self._specs[identity["method"]].facts.reads_gguf:
            telemetry["equal_tokens"] = shared_tokens(baseline.token_ids, generation.token_ids)
        return Row(
            **identity,
            status="ok",
            verdict=self._verdict(identity["method"], prompt, params, baseline, generation),
            marks=reading.marks,
            telemetry=telemetry,
            token_ids=generation.token_ids,
            committed=len(generation.token_ids),
            finish=generation.finish,
            edges=generation.edges,
            flips=None if generation.flips is None else len(generation.flips),
            rounds=generation.rounds,
            prefill=generation.prefill,
            prefill_tokens=generation.prefill_tokens,
            decode_forwards=generation.decode_forwards,
            prefill_s=generation.prefill_s,
            decode_s=generation.decode_s,
            e2e_s=generation.e2e_s,
            spans=generation.spans,
        )

    def _clocked(self, row: Row) -> Row:
        """Return a row with the times of the run's clock."""
        if self._profile is None:
            return row
        neural = self._specs[row.method].needed_drafters
        try:
            return retimed(row, self._profile, neural)
        except UserError as error:  # a plug-in without rounds
            measured = dict.fromkeys(("verdict", "prefill_s", "decode_s", "e2e_s", "spans"))
            failed = row.model_copy(update={"status": "failed", "error": str(error), **measured})
            return retimed(failed, self._profile, neural)

    def _verdict(
        self, name: str, prompt: Sequence[int], params: DecodingParams, baseline: Generation, generation: Generation
    ) -> Verdict:
        if name == BASELINE:
            return "reference"
        if generation.rounds is None and not params.greedy:
            return "unverified"  # an external baseline draws in its own way
        if self._specs[name].facts.reads_gguf and generation.token_ids != baseline.token_ids:
            return "unverified"  # it computes with other weights: quantised ones
        mine, flips = generation.token_ids, generation.flips or ()
        return certify(self._loaded.models.target, params, prompt, baseline.token_ids, mine, flips)

    def _failed(
        self, block: Block, turn: int, name: str, attempt: int, prompt: Sequence[int] | None, error: str
    ) -> Row:
        return Row(**self._identity(block, turn, name, attempt, prompt), status="failed", error=error)

    def _identity(
        self, block: Block, turn: int, name: str, attempt: int, prompt: Sequence[int] | None
    ) -> dict[str, Any]:
        config, facts = self._config, self._specs[name].facts
        engine = facts.engine or self._loaded.models.target.engine.name
        request = {
            "pair": self._loaded.pair.name,
            "weights": {role: facts["sha256"] for role, facts in self._loaded.weights.items()},
            "data": self._data[block.task].sha256,
            "task": block.task,
            "question": block.question.question_id,
            "turn": turn,
            "prompt": None if prompt is None else list(prompt),
            "method": self._specs[name].model_dump(),
            "decoding": config.model_dump(include={*DECODING_KEYS}),
            "dtype": config.dtype or self._loaded.pair.dtype,
            **({} if engine == "hf" else {"engine": engine}),  # older rows have no engine in their keys
            "seed": config.seed,
            "repeat": block.repeat,
            "clock": config.clock,
        }
        return {
            "key": hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:32],
            "attempt": attempt,
            "pair": self._loaded.pair.name,
            "task": block.task,
            "question_id": block.question.question_id,
            "turn": turn,
            "method": name,
            "engine": engine,
            "baseline": facts.baseline,
            "seed": config.seed,
            "repeat": block.repeat,
            "clock": config.clock,
            "prompt_tokens": None if prompt is None else len(prompt),
            "prompt_sha256": None if prompt is None else prompt_digest(prompt),
        }


def _checked(generation: object) -> Generation:
    """Return a method's generation if a row can hold it; a plug-in may give anything."""
    if not isinstance(generation, Generation):
        raise TypeError(f"generate gave a {type(generation).__name__}, not a Generation")
    if not all(isinstance(token, int) for token in generation.token_ids):
        raise TypeError("token_ids are not all whole numbers")
    return generation
