"""llama.cpp's server in a process of its own.

Beside torch in one process both engines slow down (on two cores ours to 56%, llama.cpp to 63%): OpenMP counts the
threads of both, finds more than cores, and puts them to sleep between any two products.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import weakref
from dataclasses import asdict, dataclass, field
from typing import IO, Any


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What a server runs."""

    file: str
    """The GGUF file."""
    context: int
    """Tokens of prompt and answer together."""
    threads: int
    """Threads of its forwards."""
    drafts: str | None = None
    """The type of its n-gram drafts, such as `ngram-simple`; None drafts nothing."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Parameters of its drafts."""


class LlamaServer:
    """A server that listens until this object is gone, or its process dies.

    Raises RuntimeError, with what llama.cpp printed last, if it does not start.
    """

    def __init__(self, settings: ServerSettings) -> None:
        command = [sys.executable, "-m", __name__, json.dumps(asdict(settings))]
        with tempfile.TemporaryFile() as log:
            # It finds the packages that this process found, also those of a folder that was put on the path.
            paths = os.pathsep.join(filter(None, sys.path))
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": paths},
            )
            assert child.stdin is not None
            assert child.stdout is not None
            self._end = weakref.finalize(self, _end, child, child.stdin, child.stdout)
            self.address = child.stdout.readline().decode().strip()
            if not self.address:
                self._end()
                log.seek(0)
                raise RuntimeError(f"llama.cpp did not start: {_last_line(log)}")


def _end(child: subprocess.Popen[bytes], *pipes: IO[bytes]) -> None:
    for pipe in pipes:
        pipe.close()
    child.wait()


def _last_line(log: IO[bytes]) -> str:
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"


def parameters(bindings: Any, settings: ServerSettings) -> Any:
    """Return llama.cpp's parameters.

    Args:
        bindings: the module `xllamacpp`.
        settings: what to run.
    """
    params = bindings.CommonParams()
    params.model.path = settings.file
    params.n_ctx = settings.context
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
    params.n_gpu_layers = 0
    params.no_op_offload = True  # or a build for GPUs would compute long prompts there
    params.fit_params = False
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.verbosity = -1
    if settings.drafts is not None:
        name = settings.drafts.replace("-", "_")
        kind = getattr(bindings.common_speculative_type, f"COMMON_SPECULATIVE_TYPE_{name.upper()}")
        params.speculative.types = [kind]
        for key, value in settings.sizes.items():
            setattr(getattr(params.speculative, name), key, value)
    return params


def _serve() -> None:
    """Serve until standard input ends, which it does when the parent is gone."""
    import xllamacpp

    server = xllamacpp.Server(parameters(xllamacpp, ServerSettings(**json.loads(sys.argv[1]))))
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()


if __name__ == "__main__":
    _serve()
