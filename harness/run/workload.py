"""The workload of a run: its blocks, in a seeded order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from harness.config.run_config import RunConfig
from harness.records.schema import TaskData
from tasks.question import Question
from tasks.registry import get_task
from tasks.sources import load_questions

BlockId = tuple[str, int, int]
"""Task, question and repeat of a block."""


@dataclass(frozen=True, slots=True)
class Block:
    """The unit of work and of loss: one question (all turns) × one repeat × all methods."""

    task: str
    question: Question
    repeat: int

    @property
    def id(self) -> BlockId:
        """Task, question and repeat."""
        return self.task, self.question.question_id, self.repeat


def load_blocks(config: RunConfig) -> tuple[list[Block], dict[str, TaskData]]:
    """Return the blocks of the tasks' questions in a random seeded order, and where the data came from."""
    blocks: list[Block] = []
    data: dict[str, TaskData] = {}
    for name in dict.fromkeys(config.tasks):
        loaded = load_questions(get_task(name), split=config.split, data=config.data)
        questions = loaded.questions[: config.limit]
        data[name] = TaskData(
            source=loaded.source,
            origin=loaded.origin,
            split=loaded.split,
            sha256=loaded.sha256,
            n=len(questions),
            notes=list(loaded.notes),
        )
        blocks += [Block(name, question, repeat) for question in questions for repeat in range(config.repeats)]
    random.Random(f"{config.seed} blocks").shuffle(blocks)
    return blocks, data


def method_order(names: Sequence[str], seed: int, block: Block, turn: int) -> list[str]:
    """Return the order in which a block's turn runs its methods: random, and the same for the same seed."""
    order = list(names)
    random.Random(f"{seed} {block.id} {turn}").shuffle(order)
    return order
