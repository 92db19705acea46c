"""Garbage collection kept out of what is timed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_collections() -> Iterator[None]:
    """Set aside all that is loaded by now, so that a collection before each answer takes no fifth of a second."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect before, not during."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
