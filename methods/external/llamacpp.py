"""External baselines: llama.cpp on the target's GGUF file, by its own server and its own clock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http.client import HTTPConnection
from typing import Any, cast
from urllib.parse import urlsplit

import torch

from foundation.errors import UserError
from methods.core.generation import Finish, Forward, Generation
from methods.core.sampling import DecodingParams
from methods.core.stopping import Stopper
from methods.external.facts import FACTS
from methods.external.llamacpp_server import LlamaServer, ServerSettings
from methods.external.options import NgramOptions
from methods.method import Method, Models, register_method
from methods.settings import Settings

_LEAST_CONTEXT = 4096


@register_method("llamacpp")
class LlamaCpp(Method):
    """llama.cpp, greedy; its rounds and spans are null.

    It loads the model at the first prompt, and again for one that needs a longer context, outside the times, and frees
    it with the method. Times are the server's: prefill ends with the first token, which is excluded from tokens/s.
    Raises UserError if the target came from no GGUF file.
    """

    facts = FACTS["llamacpp"]
    remembers = False
    """Whether its server drafts from earlier prompts too, so that each prompt needs a new one."""

    def __init__(self, models: Models, settings: Settings) -> None:
        super().__init__(models, settings)
        if models.gguf is None:
            raise UserError("llama.cpp reads GGUF files; give a pair whose target is a GGUF file")
        self._file = models.gguf
        self._server: LlamaServer | None = None
        self._context = 0

    def generate(self, prompt_ids: Sequence[int], params: DecodingParams) -> Generation:
        """Decode one prompt; see `Method.generate`."""
        self.check_prompt(prompt_ids, params)
        stopper = Stopper(params, self.models.tokenizer)
        self._load(len(prompt_ids) + params.max_new_tokens)
        request = {
            "prompt": list(prompt_ids),
            "n_predict": params.max_new_tokens,
            "temperature": 0.0,
            "stop": list(params.stop),
            "cache_prompt": False,
            "return_tokens": True,
        }
        assert self._server is not None
        return _generation(_ask(self._server.address, request), len(prompt_ids), stopper)

    def _drafts(self) -> tuple[str | None, dict[str, int]]:
        """Return the type of llama.cpp's drafts and their sizes."""
        return None, {}

    def _load(self, tokens: int) -> None:
        if tokens < self._context and not self.remembers:
            return
        self._server = None  # frees the old one first
        self._context = max(_LEAST_CONTEXT, 1 << tokens.bit_length())
        kind, sizes = self._drafts()
        settings = ServerSettings(str(self._file), self._context, torch.get_num_threads(), kind, sizes)
        self._server = LlamaServer(settings)


@register_method("llamacpp-ngram")
class LlamaCppNgram(LlamaCpp):
    """llama.cpp with its own n-gram drafts, from the prompt and the answer so far alone."""

    facts = FACTS["llamacpp-ngram"]

    def __init__(self, models: Models, settings: Settings) -> None:
        super().__init__(models, settings)
        self._options = settings.options_as(NgramOptions, "llamacpp-ngram")
        self.remembers = self._options.type != "ngram-simple"

    def _drafts(self) -> tuple[str | None, dict[str, int]]:
        """Return the type of llama.cpp's drafts and their sizes."""
        return self._options.type, self._options.sizes


def _ask(address: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the server's reply to a completion; the Python bindings' own call gives text without token ids."""
    connection = HTTPConnection(urlsplit(address).netloc)
    try:
        connection.request("POST", "/completion", json.dumps(request), {"Content-Type": "application/json"})
        response = connection.getresponse()
        reply = json.loads(response.read())
    finally:
        connection.close()
    if response.status != 200:
        raise RuntimeError(f"llama.cpp refused the prompt: {reply.get('error', {}).get('message', reply)}")
    return cast("dict[str, Any]", reply)


def _generation(reply: dict[str, Any], prompt_tokens: int, stopper: Stopper) -> Generation:
    tokens, times = reply["tokens"], reply["timings"]
    if times["prompt_n"] != prompt_tokens:
        raise RuntimeError(f"llama.cpp evaluated {times['prompt_n']} of {prompt_tokens} tokens of the prompt")
    token_ids, finish = stopper.cut([], tokens)
    if len(token_ids) < len(tokens):
        raise RuntimeError(f"llama.cpp decoded {len(tokens) - len(token_ids)} tokens behind the answer's end")
    if finish is None and reply["stop_type"] == "eos":
        finish = "eos"  # a token that ends an answer for llama.cpp alone
    return Generation(
        token_ids=token_ids,
        finish=_finished(finish, reply["stop_type"]),
        rounds=None,
        prefill=[Forward("target", None, prompt_tokens, 0)],
        prefill_s=times["prompt_ms"] / 1000,
        decode_s=times["predicted_ms"] / 1000,
        spans=None,
        prefill_tokens=1,
        decode_forwards=_decode_forwards(len(token_ids), times, finish),
    )


def _decode_forwards(tokens: int, times: dict[str, Any], finish: Finish | None) -> int | None:
    accepted: int = times.get("draft_n_accepted", 0)
    if accepted and finish != "length":
        return None  # accepted draft tokens behind the end are counted too
    return tokens - 1 - accepted


def _finished(finish: Finish | None, reason: str) -> Finish:
    if finish is None:
        raise RuntimeError(f"llama.cpp stopped ({reason}) before the answer ended")
    return finish
