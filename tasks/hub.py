"""Records of a pinned data set on the Hugging Face hub; `datasets` is imported on first use."""

from __future__ import annotations

import functools
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Iterator

from foundation.errors import UserError
from tasks.records import Record
from tasks.task import Hub

REACH_SECONDS = 5.0


class Unavailable(Exception):  # noqa: N818
    """A source that cannot serve a task; the text says why, and is empty if the task does not have that source."""


def hub_records(hub: Hub, split: str) -> Iterator[Record]:
    """Return the rows of one split, in order.

    Raises Unavailable if offline or the data set is missing, UserError if it lacks the configuration or split.
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
        raise UserError(f"hub: {name}: {' '.join(str(error).split())}: fix config or split of the task") from error
    return (Record(f"{name} {split} row {row}", row, dict(fields)) for row, fields in enumerate(rows))


@functools.cache
def _unreachable() -> str | None:
    """Return why the hub cannot be reached, None if it can; `datasets` itself would retry for 20 seconds a task."""
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
