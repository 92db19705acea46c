"""llama.cpp as a method: a scripted server, and the embedded model on the real one."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from foundation.errors import UserError
from methods.catalog import load_family, resolve
from methods.core.sampling import DecodingParams
from methods.external.llamacpp_server import LlamaServer, ServerSettings, parameters
from tasks.registry import get_task
from tasks.sources import load_questions

pytestmark = pytest.mark.torch

TIMES = {"prompt_n": 3, "prompt_ms": 250.0, "predicted_ms": 500.0}


def reply(tokens, stop_type="limit", **times):
    return 200, {"tokens": tokens, "stop_type": stop_type, "timings": {**TIMES, **times}}


class Scripted:
    """A server that answers with `reply`, and notes what it was asked and with which settings it was made."""

    def __init__(self):
        self.reply = reply([])
        self.requests, self.made, self.live = [], [], 0
        script = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                script.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                status, content = script.reply
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(content).encode())

            def log_message(self, *_):
                pass

        class Server:
            def __init__(self, settings):
                script.made.append(settings)
                script.live += 1
                self.address = script.address

            def __del__(self):
                script.live -= 1

        self.Server = Server
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def scripted(monkeypatch):
    server = Scripted()
    monkeypatch.setattr("methods.external.llamacpp.LlamaServer", server.Server)
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture
def decoder(llama, letters):
    """Build a method of llama.cpp whose target is the tiny model."""
    from methods.core.model import TreeModel
    from methods.method import Models

    def build(name="llamacpp", **settings):
        spec = resolve(name, flags=settings)
        return load_family(spec.family)(Models(TreeModel(llama), letters, gguf=Path("tiny.gguf")), spec.settings)

    return build


PROMPT = [5, 6, 7]


def test_the_prompt_goes_by_its_tokens_greedy_and_cold_and_the_servers_clock_counts(scripted, decoder):
    scripted.reply = reply([8, 9, 10, 11])

    generation = decoder().generate(PROMPT, DecodingParams(max_new_tokens=4, stop=("zz",)))

    (request,) = scripted.requests
    assert request["prompt"] == PROMPT
    assert (request["n_predict"], request["stop"]) == (4, ["zz"])
    assert (request["temperature"], request["cache_prompt"]) == (0.0, False)
    assert (generation.token_ids, generation.finish) == ([8, 9, 10, 11], "length")
    assert (generation.prefill_s, generation.decode_s) == (0.25, 0.5)
    assert (generation.prefill_tokens, generation.decode_forwards) == (1, 3)
    assert (generation.rounds, generation.spans) == (None, None)


def test_an_answer_ends_at_our_end_token_at_a_stop_string_or_at_an_end_token_of_its_own(scripted, decoder, letters):
    scripted.reply = reply([8, 9, 10], "eos")
    ours = decoder().generate(PROMPT, DecodingParams(max_new_tokens=9, eos_ids=frozenset({10})))
    own = decoder().generate(PROMPT, DecodingParams(max_new_tokens=9, eos_ids=frozenset({11})))
    scripted.reply = reply([8, 9, 10], "word")
    stopped = decoder().generate(PROMPT, DecodingParams(max_new_tokens=9, stop=(letters.decode([9, 10]),)))

    assert [one.token_ids for one in (ours, own, stopped)] == [[8, 9, 10]] * 3
    assert [one.finish for one in (ours, own, stopped)] == ["eos", "eos", "stop"]


def test_accepted_drafts_save_forwards_unless_the_answer_may_have_ended_inside_one(scripted, decoder):
    scripted.reply = reply([8] * 12, draft_n=20, draft_n_accepted=7)
    whole = decoder("llamacpp-ngram").generate(PROMPT, DecodingParams(max_new_tokens=12))
    scripted.reply = reply([8] * 11 + [10], "eos", draft_n=20, draft_n_accepted=7)
    ended = decoder("llamacpp-ngram").generate(PROMPT, DecodingParams(max_new_tokens=30, eos_ids=frozenset({10})))

    assert whole.decode_forwards == 12 - 1 - 7
    assert ended.decode_forwards is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            (400, {"error": {"message": "Prompt contains invalid tokens"}}),
            "refused the prompt: Prompt contains invalid",
        ),
        (reply([8, 9], prompt_n=1), "evaluated 1 of 3 tokens of the prompt"),
        (reply([8, 9], "limit"), r"stopped \(limit\) before the answer ended"),
        (reply([8] * 6), "decoded 2 tokens behind the answer's end"),
    ],
)
def test_a_reply_that_cannot_be_compared_is_an_error_in_plain_words(scripted, decoder, answer, reason):
    scripted.reply = answer

    with pytest.raises(RuntimeError, match=f"llama.cpp {reason}"):
        decoder().generate(PROMPT, DecodingParams(max_new_tokens=4))


def test_one_server_serves_prompts_until_one_needs_more_context_and_goes_with_the_method(
    scripted, decoder, monkeypatch
):
    monkeypatch.setattr("methods.external.llamacpp._LEAST_CONTEXT", 16)
    scripted.reply = reply([8])
    one = decoder()
    assert scripted.made == []
    for length, prompt in [(3, PROMPT), (3, PROMPT), (40, [5] * 40)]:
        scripted.reply = reply([8], prompt_n=length)
        one.generate(prompt, DecodingParams(max_new_tokens=1))

    assert [settings.context for settings in scripted.made] == [16, 64]
    assert scripted.live == 1
    del one
    assert scripted.live == 0


def test_the_type_of_drafts_and_their_sizes_are_options(scripted, decoder):
    scripted.reply = reply([8])
    for name, options in [
        ("llamacpp", {}),
        ("llamacpp-ngram", {}),
        ("llamacpp-ngram", {"type": "ngram-map-k", "size_n": 4, "min_hits": 2}),
    ]:
        decoder(name, options=options).generate(PROMPT, DecodingParams(max_new_tokens=1))

    assert [(settings.drafts, settings.sizes) for settings in scripted.made] == [
        (None, {}),
        ("ngram-simple", {}),
        ("ngram-map-k", {"size_n": 4, "min_hits": 2}),
    ]


def test_settings_become_llama_cpps_parameters():
    bindings = SimpleNamespace(
        CommonParams=lambda: SimpleNamespace(
            model=SimpleNamespace(),
            cpuparams=SimpleNamespace(),
            cpuparams_batch=SimpleNamespace(),
            speculative=SimpleNamespace(types=["none"], ngram_map_k=SimpleNamespace()),
        ),
        common_speculative_type=SimpleNamespace(COMMON_SPECULATIVE_TYPE_NGRAM_MAP_K="MAP_K"),
    )

    plain = parameters(bindings, ServerSettings("a.gguf", 64, 2))
    mapped = parameters(bindings, ServerSettings("a.gguf", 64, 2, "ngram-map-k", {"size_n": 4}))

    assert (plain.model.path, plain.n_ctx, plain.cpuparams.n_threads) == ("a.gguf", 64, 2)
    assert (plain.speculative.types, mapped.speculative.types) == (["none"], ["MAP_K"])
    assert vars(mapped.speculative.ngram_map_k) == {"size_n": 4}


def test_a_type_that_remembers_earlier_prompts_gets_a_new_server_for_each(scripted, decoder):
    scripted.reply = reply([8])
    counts = []
    for kind in ("ngram-simple", "ngram-map-k"):
        one = decoder("llamacpp-ngram", options={"type": kind})
        for _ in range(3):
            one.generate(PROMPT, DecodingParams(max_new_tokens=1))
        counts.append(len(scripted.made))

    assert counts == [1, 1 + 3]
    assert scripted.live == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [({"type": "ngram"}, "ngram-simple"), ({"type": "ngram-mod", "size_n": 4}, "ngram-mod has no size_n")],
)
def test_a_type_that_is_none_or_lacks_a_size_is_refused(options, message):
    spec = resolve("llamacpp-ngram", flags={"options": options})

    with pytest.raises(UserError, match=message):
        spec.facts.check(spec.family, spec.settings)


@pytest.fixture
def real():
    pytest.importorskip("xllamacpp", reason="llama.cpp is not installed: pip install 'treegraft-bench[llamacpp]'")


@pytest.fixture
def asked(smollm2):
    """A question's prompt, and how to decode it."""
    from harness.models.prompts import conversation, prompt_ids

    question = load_questions(get_task("gsm8k"), data="embedded").questions[0]
    prompt = prompt_ids(smollm2.models.tokenizer, "chat", conversation(question.turns, []))
    return prompt, DecodingParams(max_new_tokens=64, eos_ids=smollm2.eos_ids)


def family(name, loaded, **settings):
    spec = resolve(name, flags=settings)
    return load_family(spec.family)(loaded.models, spec.settings)


@pytest.mark.smollm2
@pytest.mark.usefixtures("every_core", "real")
def test_it_begins_as_the_target_does_and_drafts_change_nothing(smollm2, asked):
    ours = family("autoregressive", smollm2).generate(*asked)
    theirs = family("llamacpp", smollm2).generate(*asked)
    options = {"type": "ngram-map-k", "size_n": 2, "size_m": 4}
    drafted = family("llamacpp-ngram", smollm2, options=options).generate(*asked)

    assert theirs.token_ids[:4] == ours.token_ids[:4]
    assert drafted.token_ids[:4] == ours.token_ids[:4]
    assert len(theirs.token_ids) == 64
    assert theirs.decode_forwards == 63


SHORT = {"size_n": 2, "size_m": 4}


@pytest.mark.smollm2
@pytest.mark.usefixtures("every_core", "real")
@pytest.mark.parametrize("options", [SHORT, {"type": "ngram-map-k", **SHORT}, {"type": "ngram-cache"}])
def test_text_that_repeats_itself_takes_fewer_forwards(smollm2, options):
    repeated = [504, 2365, 6354, 16438, 3421, 28, 282, 260] * 6

    generation = family("llamacpp-ngram", smollm2, options=options).generate(
        repeated, DecodingParams(max_new_tokens=24)
    )

    assert len(generation.token_ids) == 24
    assert generation.decode_forwards < 12


def check_cold(decoder, prompt, params):
    first, again = (decoder.generate(prompt, params) for _ in range(2))
    assert [one.prefill[0].tokens for one in (first, again)] == [len(prompt)] * 2  # as the server counts them
    assert (again.token_ids, again.decode_forwards) == (first.token_ids, first.decode_forwards)


@pytest.mark.smollm2
@pytest.mark.usefixtures("every_core", "real")
@pytest.mark.parametrize("kind", ["ngram-simple", "ngram-map-k4v"])
def test_a_prompt_that_was_asked_before_is_cold_again(smollm2, asked, kind):
    check_cold(family("llamacpp-ngram", smollm2, options={"type": kind, **SHORT}), *asked)


@pytest.mark.smollm2
@pytest.mark.usefixtures("every_core", "real")
def test_the_cold_check_fails_on_a_server_that_is_kept(smollm2, asked):
    decoder = family("llamacpp-ngram", smollm2, options={"type": "ngram-map-k4v", **SHORT})
    decoder.remembers = False

    with pytest.raises(AssertionError):
        check_cold(decoder, *asked)


@pytest.mark.smollm2
def test_in_a_run_other_tokens_are_unverified_and_failures_rows(smollm2, scripted, monkeypatch, tmp_path):
    from treegraft import run

    monkeypatch.setattr("methods.external.facts.find_spec", lambda name: name)
    monkeypatch.setattr("harness.run.block_runner._WARM_UP_MOST", 1)
    monkeypatch.setattr("harness.models.loading.load_for", lambda pair, config: smollm2)
    keys = {"tasks": ["nq"], "data": "embedded", "limit": 1, "max_new_tokens": 4, "methods": ["llamacpp"]}

    def outcome(name, answer):
        scripted.reply = answer
        done = run(**keys, out=str(tmp_path / name))
        return done, next(one for one in done.rows if one.method == "llamacpp")

    _, row = outcome("refused", (500, {"error": {"message": "out of memory"}}))
    assert (row.status, row.error) == ("failed", "RuntimeError: llama.cpp refused the prompt: out of memory")

    prompt = row.prompt_tokens
    done, row = outcome("other", reply([5, 5, 5, 5], prompt_n=prompt))
    ours = next(one for one in done.rows if one.method == "autoregressive").token_ids
    assert (row.verdict, row.telemetry["equal_tokens"], done.exit_code) == ("unverified", 0, 0)

    _, row = outcome("partly", reply([*ours[:2], 5, 5], prompt_n=prompt))
    assert (row.verdict, row.telemetry["equal_tokens"]) == ("unverified", 2)

    _, row = outcome("equal", reply(ours, prompt_n=prompt))
    assert (row.verdict, row.telemetry["equal_tokens"], row.engine) == ("identical", 4, "llama.cpp")


@pytest.mark.smollm2
@pytest.mark.usefixtures("real")
def test_its_process_ends_with_the_method_and_computes_nothing_between_prompts(smollm2, asked):
    decoder = family("llamacpp", smollm2)
    decoder.generate(*asked)
    (child,) = psutil.Process().children()
    time.sleep(0.2)

    before = sum(child.cpu_times()[:2])
    time.sleep(0.5)

    assert sum(child.cpu_times()[:2]) - before < 0.05  # one that spins takes half a second
    assert decoder.generate(*asked).token_ids
    del decoder
    assert not child.is_running()


@pytest.mark.usefixtures("real")
def test_a_file_that_llama_cpp_cannot_read_is_told_in_its_words(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF and no weights")

    with pytest.raises(RuntimeError, match=r"llama.cpp did not start: .*[Ff]ailed"):
        LlamaServer(ServerSettings(str(tmp_path / "bad.gguf"), 64, 1))
