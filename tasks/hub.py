"""Records of a pinned data set on the Hugging Face hub; imports `datasets` only when asked for records."""

from __future__ import annotations

import functools
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Iterator

from harness.errors import UserError
from tasks.records import Record
from tasks.task import Hub

REACH_SECONDS = 5.0


class Unavailable(Exception):  # noqa: N818
    """A source that cannot serve a task here; its text says why, and is absent where the task never had the source."""


def hub_records(hub: Hub, split: str) -> Iterator[Record]:
    """Return the rows of one split, in order.

    Args:
        hub: which data set, at which commit.
        split: name of the split on the hub.

    Raises:
        Unavailable: offline by the environment, no way to the hub, or the data set is not there.
        UserError: the data set is there but has no such configuration or split.
    """
    for variable in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(variable, "").upper() in {"1", "ON", "YES", "TRUE"}:
            raise Unavailable(f"{variable} is set")
    if (reason := _unreachable()) is not None:
        raise Unavailable(reason)

    import datasets
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    name = f"{hub.id}@{hub.revision}"
    try:
        rows = datasets.load_dataset(hub.id, hub.config, split=split, revision=hub.revision)
    except (OSError, HTTPError, datasets.exceptions.DatasetsError) as error:
        raise Unavailable(f"{name}: {' '.join(str(error).split())}") from error
    except ValueError as error:
        raise UserError(f"hub: {name}: {' '.join(str(error).split())}: mend config or split of the task") from error
    return (Record(f"{name} {split} row {row}", row, dict(fields)) for row, fields in enumerate(rows))


@functools.cache
def _unreachable() -> str | None:
    """Return why the hub cannot be reached, asked once a process; None where it answers.

    `datasets` alone retries for 20 seconds a task before it gives up.
    """
    from huggingface_hub.constants import ENDPOINT

    try:
        with urllib.request.urlopen(urllib.request.Request(ENDPOINT, method="HEAD"), timeout=REACH_SECONDS):
            return None
    except urllib.error.HTTPError:
        return None
    except urllib.error.URLError as error:
        return f"{ENDPOINT} cannot be reached ({error.reason})"
    except (OSError, http.client.HTTPException) as error:
        return f"{ENDPOINT} cannot be reached ({error})"
