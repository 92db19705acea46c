"""A run's folder: manifest and append-only rows, safe against kills, full disks and a second writer."""

from __future__ import annotations

import codecs
import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError

from foundation.atomic_write import scratch_of, write_text_whole
from foundation.errors import UserError
from harness.records.manifest import MANIFEST_FILE, Manifest, read_manifest
from harness.records.rows import ROWS_FILE, last_attempts, read_rows
from harness.records.schema import Row
from methods.latency import Latency


class Store:
    """The rows of one run, open for appending; a context manager that locks the folder, and makes it where missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._manifest_path = folder / MANIFEST_FILE
        self._rows_path = folder / ROWS_FILE

    def __enter__(self) -> Self:
        """Open the folder.

        Raises:
            UserError: it cannot be written, holds something else, or another run is writing to it.
        """
        try:
            self._made = not self.folder.exists()
            self.folder.mkdir(parents=True, exist_ok=True)
            if not self._manifest_path.exists() and self._is_foreign():
                raise UserError(
                    f"{self.folder}: holds files but no {MANIFEST_FILE}; give a new or empty folder as --out"
                )
            self._handle = os.open(self._rows_path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UserError(f"{self.folder}: cannot be written ({error.strerror}); give another --out") from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._handle)
            raise UserError(
                f"{self.folder}: another run is writing there; wait for it or give another --out"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the folder; one without a begun run is left as it was."""
        if not self._manifest_path.exists() and os.fstat(self._handle).st_size == 0:
            with suppress(OSError):
                self._rows_path.unlink()
                if self._made:
                    self.folder.rmdir()
        os.close(self._handle)

    def _is_foreign(self) -> bool:
        """Return whether the folder holds more than a run killed before its manifest was written would leave."""
        ours = (self._rows_path, scratch_of(self._manifest_path))
        return any(
            path not in ours or (path == self._rows_path and path.stat().st_size) for path in self.folder.iterdir()
        )

    def begin(self, manifest: Manifest) -> list[Row]:
        """Write the manifest, or check that it continues the run that is there; return the rows so far.

        A torn last line, left by a run killed in mid-write, is cut off; a whole one that lacks its newline gets it.

        Raises:
            UserError: the folder holds another run, or unreadable files.
        """
        if self._manifest_path.exists():
            earlier = read_manifest(self.folder)
            changed = _differences(earlier.identity(), manifest.identity())
            if changed:
                raise UserError(f"{self.folder}: holds another run ({', '.join(changed)} differ); give another --out")
            starts = [*earlier.starts, *manifest.starts]
            manifest = manifest.model_copy(update={"starts": starts, "latency": earlier.latency})
        rows = list(read_rows(self.folder))
        last_attempts(rows, self._rows_path)  # refuses an attempt that stands twice
        self._end_last_line()
        self._write_manifest(manifest)
        return rows

    @property
    def start(self) -> int:
        """The place of this start among the manifest's."""
        return len(self._manifest.starts) - 1

    @property
    def latency(self) -> Latency | None:
        """T_tgt and T_mid of the run, where known."""
        return self._manifest.latency

    def note_latency(self, latency: Latency | None) -> None:
        """Write T_tgt and T_mid to the manifest."""
        self._write_manifest(self._manifest.model_copy(update={"latency": latency}))

    def note_start(self, note: str) -> None:
        """Write a note on this start to the manifest."""
        *earlier, now = self._manifest.starts
        starts = [*earlier, now.model_copy(update={"notes": [*now.notes, note]})]
        self._write_manifest(self._manifest.model_copy(update={"starts": starts}))

    def append(self, rows: Sequence[Row]) -> None:
        """Append a block of rows and flush it to the disk, whole or not at all.

        Raises:
            UserError: the disk refused it; earlier rows are intact.
        """
        self._write("".join(f"{row.model_dump_json()}\n" for row in rows).encode())

    def _write(self, data: bytes) -> None:
        start = os.lseek(self._handle, 0, os.SEEK_END)
        try:
            written = 0
            while written < len(data):
                written += os.write(self._handle, data[written:])
            os.fsync(self._handle)
        except OSError as error:
            os.ftruncate(self._handle, start)
            raise UserError(
                f"{self._rows_path}: cannot be written ({error.strerror}); make room and run the same command again"
            ) from error

    def _end_last_line(self) -> None:
        data = self._rows_path.read_bytes()
        end = data.rfind(b"\n") + 1
        if end == len(data):
            return
        try:
            Row.model_validate_json(data[end:].removeprefix(codecs.BOM_UTF8))
        except ValidationError:
            os.ftruncate(self._handle, end)
        else:
            self._write(b"\n")

    def _write_manifest(self, manifest: Manifest) -> None:
        self._manifest = manifest
        write_text_whole(self._manifest_path, manifest.model_dump_json(indent=1) + "\n", "make room")


def _differences(earlier: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the keys of both whose values differ, those of the configuration first."""
    config = [key for key in now["config"] if now["config"][key] != earlier["config"][key]]
    return config or [key for key in now if key in earlier and now[key] != earlier[key]]
