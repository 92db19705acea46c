"""Atomic writes: a file is written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from foundation.errors import UserError


def scratch_of(file: Path) -> Path:
    """Return the temporary path that a file is written to before it is renamed."""
    return file.with_name(f".{file.name}.new")


def write_whole(file: Path, write: Callable[[Path], object], fix: str) -> None:
    """Write a file atomically: a kill or a full disk leaves the earlier file as it was.

    `write` gets the path to write to. Raises UserError with the file and `fix`, which says what the user can do.
    """
    is_device = file.exists() and not file.is_file()  # a terminal or a pipe cannot be replaced
    scratch = file if is_device else scratch_of(file)
    try:
        write(scratch)
        if not is_device:
            scratch.replace(file)
    except OSError as error:
        if not is_device:
            with suppress(OSError):
                scratch.unlink()
        raise UserError(f"{file}: cannot be written ({error.strerror or error}); {fix}") from error


def write_text_whole(file: Path, text: str, fix: str) -> None:
    """Write a UTF-8 text file atomically; see `write_whole`."""
    write_whole(file, lambda scratch: scratch.write_text(text, encoding="utf-8"), fix)
