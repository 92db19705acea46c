"""A recorded run's rows under another clock, one by one, for comparisons."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from foundation.errors import UserError
from harness.clocks.cost_model import profile_of, retimed
from harness.records.manifest import read_manifest
from harness.records.schema import Row


def retimer(clock: str, run: Path) -> tuple[Callable[[Row], Row | None], str]:
    """Return a function that gives a run's rows the times of a profile, and the profile's caption.

    The function returns None for methods whose schedules depend on latencies: under another clock they would differ.

    Args:
        clock: `profile:NAME`.
        run: the folder of a run, or its `rows.jsonl`.

    Raises:
        UserError: no such run or profile.
    """
    folder = run.parent if run.is_file() else run
    manifest = read_manifest(folder)
    profile = profile_of(clock, manifest.pair)
    if profile is None:
        raise UserError(f"--clock {clock}: not modelled; give profile:NAME, or compare with --mode wall")
    traits = {name: manifest.traits_of(name) for name in manifest.specs}

    def retime(row: Row) -> Row | None:
        if row.method not in traits:
            raise UserError(f"rows of method {row.method}, which the manifest does not know; restore the files")
        own = traits[row.method]
        return None if own.weighs_times else retimed(row, profile, own.drafters)

    return retime, profile.caption(manifest.pair.name)
