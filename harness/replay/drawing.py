"""Draws recorded rounds: trees are not stored, so they are drafted again from the row's token ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.markup import escape
from rich.tree import Tree

from foundation.errors import UserError
from harness.records.schema import Row
from harness.replay.recorded_run import RecordedRun
from methods.catalog import load_family
from methods.core.generation import Round
from methods.core.tree import UNSCORED, DraftTree
from methods.tree_method import TreeMethod


def drawings(run: Path, question: str, method: str, round_number: int | None) -> Iterator[Tree]:
    """Yield one drawing a round.

    Args:
        run: the folder of a run.
        question: `task/id` or `task/id/turn`.
        method: a tree method of the run.
        round_number: only this round, from 0.

    Raises:
        UserError: no such answer, changed data, or a method that drafts no trees.
    """
    recorded = RecordedRun(run)
    task, question_id, turn = _parse(question)
    spec = recorded.spec(method)
    wanted = (task, question_id, turn, 0, method, "ok")
    row = next((row for row in recorded.rows if _place(row) == wanted), None)
    if row is None:
        raise UserError(f"{run}: holds no answer of {method} to {task}/{question_id}/{turn}; see its rows.jsonl")
    if row.rounds is None:
        raise UserError(f"{run}: {method} has no per-round data to draw; give a method of ours")
    if round_number is not None and not 0 <= round_number < len(row.rounds):
        raise UserError(f"--round {round_number}: the answer has rounds 0 to {len(row.rounds) - 1}")
    if recorded.manifest.traits_of(method).memory == "run":
        raise UserError(
            f"--method {method}: it keeps what it learnt from earlier questions (memory: run), so its trees cannot be "
            "drafted again; give another method"
        )
    prompt = recorded.prompt(row)
    tokenizer = recorded.loaded.models.tokenizer
    recorded.check_artifact(spec)
    decoder = load_family(spec.family)(recorded.loaded.models, spec.settings)
    if not isinstance(decoder, TreeMethod):
        raise UserError(f"--method {method}: it drafts no trees of ours; give a tree method")
    decoder.latency = recorded.manifest.latency
    _, rounds = decoder.redraft(prompt, row.token_ids, recorded.config.max_new_tokens)
    for index, (tree, committed, record) in enumerate(rounds):
        recorded_round = row.rounds[index]
        if replace(record, by_middle=recorded_round.by_middle) != recorded_round:  # older rows lack `by_middle`
            raise UserError(f"{run}: {question}: round {index} is drafted otherwise here than where it was recorded")
        if round_number is None:
            yield _draw(tree, set(range(len(tree))), committed, record, index, tokenizer)
        elif round_number == index:
            drafted = getattr(decoder, "drafted", tree)
            survivors = {tree.source(node) for node in range(len(tree))}
            yield _draw(drafted, survivors, committed, record, index, tokenizer)


def _parse(question: str) -> tuple[str, int, int]:
    parts = question.split("/")
    if len(parts) not in (2, 3) or not all(part.isdecimal() for part in parts[1:]):
        raise UserError(f"{question}: not an answer; write task/id or task/id/turn, such as gsm8k/3")
    return parts[0], int(parts[1]), int(parts[2]) if len(parts) == 3 else 0


def _place(row: Row) -> tuple[str, int, int, int, str, str]:
    return row.task, row.question_id, row.turn, row.repeat, row.method, row.status


def _draw(
    tree: DraftTree, survivors: set[int], committed: list[int], record: Round, index: int, tokenizer: object
) -> Tree:
    """Return a drawing of a tree: token, origin, score and fate of each node."""
    accepted = set(tree.follow(committed[: record.accepted]))
    bonus = _text(tokenizer, committed[-1])
    schedule = "" if record.schedule is None else f", schedule {record.schedule}"
    title = f"round {index}: {record.drafted} drafted, {record.accepted} accepted, then {bonus}{schedule}"
    drawing = Tree(f"{title}\n{_label(tree, 0, survivors, accepted, tokenizer)}")
    branches = {0: drawing}
    for node in tree.alive():
        if node:
            branches[node] = branches[tree.parents[node]].add(_label(tree, node, survivors, accepted, tokenizer))
    return drawing


def _label(tree: DraftTree, node: int, survivors: set[int], accepted: set[int], tokenizer: object) -> str:
    score = "unscored" if tree.scores[node] == UNSCORED else f"{tree.scores[node]:.2f}"
    words = [_text(tokenizer, tree.tokens[node]), tree.origins[node], score]
    if node in tree.expanded:
        words.append("grafted onto")
    if node not in survivors:
        return f"[dim]{' '.join([*words, 'pruned'])}[/dim]"
    if node in accepted and node:
        return f"[bold green]{' '.join([*words, 'accepted'])}[/bold green]"
    return " ".join(words)


def _text(tokenizer: object, token: int) -> str:
    return escape(repr(tokenizer.decode([token])))  # type: ignore[attr-defined]
