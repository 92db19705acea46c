"""Row validation: contradictions in an edited row. A run writes no such row, and none of them gives a number."""

from __future__ import annotations

from harness.records.schema import EdgeTally, Forward, Round, Row

BASELINE = "autoregressive"
NOT_IDENTICAL = "verdict identical, but the tokens are not the baseline's"

_LARGEST_TREE = 2**16  # nodes drafted in a round before it is pruned; ours stay under a thousand
_TALLIED = {"middle", "small", "both"}


def contradiction(row: Row) -> str | None:
    """Return a contradiction in an answered row, beside its times and number of tokens; null where there is none."""
    if (row.verdict == "reference") != (row.method == BASELINE):
        return "verdict reference is the baseline's, and the baseline has no other"
    if row.flips and row.verdict == "identical":
        return "verdict identical, but draws of its own were others"
    seen = sum(forward.tokens for forward in row.prefill if forward.role == "target")
    if row.prefill_tokens and row.prefill and seen < (row.prompt_tokens or 0):
        return "prefill yielded tokens without the whole prompt"
    if row.rounds is None:
        beside = [name for name, part in (("spans", row.spans), ("edges", row.edges)) if part is not None]
        if beside:
            return f"{beside[0]} without rounds"
        forwards = row.decode_forwards
        return (
            None
            if forwards is None or 1 <= forwards <= row.timed_tokens
            else "more forwards than timed tokens, or none"
        )
    return _of_rounds(row, row.rounds)


def _of_rounds(row: Row, rounds: list[Round]) -> str | None:
    if row.decode_forwards is not None:
        return "decode_forwards beside rounds"
    if row.timed_tokens < sum(one.accepted for one in rounds) + len(rounds) - 1:
        return "the rounds do not add up to the committed tokens"  # each but the last adds one token of the target's
    if len({one.schedule is None for one in rounds}) > 1 or len({bool(one.forwards) for one in rounds}) > 1:
        return "rounds with and without a schedule or forwards"
    if not all(map(_is_round, rounds)):
        return "a round's schedule and forwards contradict each other"
    text = (row.prompt_tokens or 0) + row.committed
    if not all(_fits(forward, text) for one in rounds for forward in one.forwards):
        return "a forward has more tokens than text and tree"
    if not all(0 <= one.drafted < _LARGEST_TREE and 0 <= (one.by_middle or 0) <= one.accepted for one in rounds):
        return "a round counts more nodes of a drafter than it accepted, or drafted a tree beyond reason"
    return None if row.edges is None else _of_edges(row.edges, rounds)


def _of_edges(edges: EdgeTally, rounds: list[Round]) -> str | None:
    if not edges.keys() <= _TALLIED:
        return f"edges of a drafter other than {', '.join(sorted(_TALLIED))}"
    if sum(one.edges for bins in edges.values() for one in bins) > _LARGEST_TREE * len(rounds):
        return "more edges than the rounds can have drafted"
    return None


def _fits(forward: Forward, text: int) -> bool:
    most = text + _LARGEST_TREE
    return 0 < forward.tokens <= most and 0 <= forward.context <= most


def _is_round(one: Round) -> bool:
    if one.schedule is not None and not {*one.schedule} <= {0, 1}:
        return False
    verified = [forward.tokens for forward in one.forwards if forward.role == "target"]
    if one.forwards and verified != [one.drafted + 1]:
        return False
    return one.schedule is None or all(
        _was_scheduled(forward, one.schedule) for forward in one.forwards if forward.role != "target"
    )


def _was_scheduled(forward: Forward, schedule: list[int]) -> bool:
    if forward.step is None or not 1 <= forward.step <= len(schedule):
        return False
    return schedule[forward.step - 1] == (forward.role == "middle")
