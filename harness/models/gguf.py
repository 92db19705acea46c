"""GGUF weights de-quantised once and cached as safetensors, since it takes a quarter of a minute."""

from __future__ import annotations

import io
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from foundation.digests import file_digest
from foundation.errors import UserError

_LOG = logging.getLogger("treegraft")

_MAGIC = b"GGUF"
_FORMAT = "1"  # part of the cache's key: raise it when what is written changes


def cache_folder() -> Path:
    """Return the folder of derived files: TREEGRAFT_CACHE, or the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "treegraft"
    return Path(os.environ.get("TREEGRAFT_CACHE") or default)


def dequantised(gguf: Path) -> Path:
    """Return a folder with the GGUF's model and tokenizer in Hugging Face's layout, fp32 safetensors."""
    with gguf.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise UserError(f"{gguf}: not a GGUF file; give another, or fetch it again")
    folder = cache_folder() / f"gguf-{file_digest(gguf)[:16]}-v{_FORMAT}"
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    except OSError as error:
        raise UserError(f"{folder.parent}: cannot be written ({error.strerror}); set TREEGRAFT_CACHE") from error
    _LOG.info("de-quantising %s into %s, once (a quarter of a minute)", gguf.name, folder.parent)
    try:
        _convert(gguf, scratch)
        scratch.rename(folder)
    except (OSError, SafetensorError) as error:  # the latter on a full disk
        if not folder.is_dir():  # another process may have been first
            raise UserError(
                f"{gguf}: cannot be converted into {folder.parent} ({error}); fix the file or set TREEGRAFT_CACHE"
            ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers' progress bars and reports out of the terminal while a model loads."""
    bar, level = transformers_logging.is_progress_bar_enabled(), transformers_logging.get_verbosity()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bar:
            transformers_logging.enable_progress_bar()


def gguf_tokenizer(gguf: Path) -> Any:
    """Return a GGUF file's tokenizer."""
    return AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)


def _convert(gguf: Path, folder: Path) -> None:
    try:
        with quiet_transformers(), redirect_stderr(io.StringIO()):  # a bar of tqdm's own
            model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
            tokenizer = gguf_tokenizer(gguf)
    except Exception as error:  # a broken file can raise anything
        reason = " ".join(str(error).split())
        raise UserError(f"{gguf}: transformers cannot read it ({reason}); give another GGUF file") from error
    config = model.config.to_diff_dict()
    config.pop("quantization_config", None)  # the tensors are plain by now, and save_pretrained would refuse
    type(model.config).from_dict({**config, "architectures": [type(model).__name__]}).save_pretrained(folder)
    save_model(model, str(folder / "model.safetensors"), metadata={"format": "pt"})
    if model.generation_config is not None:
        model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
