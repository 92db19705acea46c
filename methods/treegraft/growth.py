"""Growth of a round's tree, one drafting step at a time, for schedulers and for training."""

from __future__ import annotations

from methods.drafters.drafter import TreeDrafter
from methods.schedulers.scheduler import DraftState
from methods.settings import Settings


def is_exhausted(state: DraftState, settings: Settings, has_middle: bool) -> bool:
    """Return whether drafting is over: nothing is left to draft from or, as in the public code, the tree is full.

    `has_middle` says whether a middle step may come, which reselects without a frontier.
    """
    release = settings.exhaustion == "release"
    if not state.frontier and (release or not has_middle):
        return True
    return release and state.tree.held >= settings.cap


def take_step(state: DraftState, drafter: TreeDrafter, cap: int) -> bool:
    """Let a drafter take the next step; return False if its context has no room, which ends drafting."""
    if not drafter.fits(state.tree, state.frontier):
        return False
    state.frontier, work = drafter.extend(state.tree, state.frontier, state.step, cap)
    if work is not None:
        state.forwards.append(work)
    state.calls.append(int(drafter.role == "middle"))
    return True


def round_rows(settings: Settings) -> int:
    """Return the KV rows of a round in a neural drafter, where the rows of deleted nodes stay."""
    return settings.cap * (1 if settings.non_destructive else settings.steps)
