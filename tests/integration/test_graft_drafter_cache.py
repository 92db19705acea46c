"""A neural drafter's cache: at every round its distributions are those of a forward over the text alone."""

import random

import pytest

from harness.training.edge_regression import PRIOR
from methods.calibrated.artifact import CostTable, EdgeArtifact, write_edges
from methods.calibrated.edge_model import Recent
from methods.calibrated.method import CalibratedGrafting, ThroughputEstimate
from methods.core.model import TreeModel
from methods.core.sampling import DecodingParams
from methods.core.stopwatch import Stopwatch
from methods.schedulers.scheduler import FixedSchedule
from methods.treegraft import method as treegraft

pytestmark = pytest.mark.torch

WATCH = Stopwatch()
FEW_LETTERS = random.Random(0).choices(range(5), k=50)  # so that most nodes have three continuations
PROMPTS = [[9], [17, 17], [5, 40, 5], [4, 8, 15, 16, 23, 42] * 2, FEW_LETTERS]
WINDOW = {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1}
GEMMA = {"sliding_window": 5, "head_dim": 8, "query_pre_attn_scalar": 8}
DRAFTERS = {
    "Llama": ("Llama", {}),
    "Llama, eager": ("Llama", {"attention": "eager"}),
    "Qwen2, windows": ("Qwen2", WINDOW),
    "Qwen3": ("Qwen3", {"head_dim": 8}),
    "Mistral, window": ("Mistral", {"sliding_window": 4}),
    "Gemma2": ("Gemma2", {**GEMMA, "attention": "eager"}),
    "Gemma3": ("Gemma3", GEMMA),
    "50 tokens": ("Llama", {"vocab_size": 50}),
    "80 tokens": ("Llama", {"vocab_size": 80}),
}


def tell(method, schedule):
    """Let a method call as a schedule says; calibrated grafting decides itself, where calls are worth anything."""
    if isinstance(method, CalibratedGrafting):
        method._artifact = method._artifact.model_copy(update={"worth": 1e3 * any(schedule)})
    method._scheduler = FixedSchedule(schedule)


def rounds(method, prompt, count, schedules=((1, 0, 1, 0, 1),), seed=0):
    """Draft round after round, each time accepting a random path of the tree; yield the context of each draft."""
    rng, context = random.Random(seed), [*prompt]
    method.models.target.begin(500)
    method.begin(context, 500)
    for number in range(count):
        tell(method, schedules[number % len(schedules)])
        method.draft(context, 99, WATCH, [])
        yield context
        tree = method.drafted
        accepted = tree.path(max(rng.randrange(len(tree)) for _ in range(2)))
        new = [*(tree.tokens[node] for node in accepted[1:]), rng.randrange(64)]
        context = [*context, *new]
        method.advance(new, accepted, WATCH)


def middle_of(method):
    return method.drafters[0]


def check_lines(method, drafter, fresh, close, prompts=PROMPTS, count=4):
    """Compare every evaluated node's distribution over the common vocabulary with a fresh forward's."""
    import torch

    evaluated = 0
    known = drafter.model.vocab_size
    common = min(64, known)
    for seed, prompt in enumerate(prompts):
        for context in rounds(method, prompt, count, seed=seed):
            tree, nodes = method.drafted, drafter.nodes
            for node in nodes.rows:
                path = [tree.tokens[step] for step in tree.path(node)[1:]]
                text = [token if token < known else 0 for token in [*context, *path]]
                line = torch.tensor([value for _, value in sorted(nodes.best([node], common)[0])])
                close(line, fresh(drafter.model.model, text)[:common].log_softmax(-1))
                evaluated += 1
            assert max(tree.tokens) < 64
    return evaluated


@pytest.fixture
def grafting(llama, tiny, method, free_calls):
    """Build a method that drafts with a tiny model of some kind."""

    def build(kind="Llama", name="treegraft-fixed", seed=7, **changes):
        drafter = tiny(kind, seed=seed, **changes)
        own = {"artifact": free_calls} if name == "treegraft-calibrated" else {}
        return method(name, llama, middle=drafter, small=drafter, width=3, **own)

    return build


@pytest.fixture(scope="module")
def free_calls(tmp_path_factory):
    """An artifact of calibrated grafting that holds calls and nodes for nearly free; return its folder."""
    folder = tmp_path_factory.mktemp("free")
    table = CostTable(context=16, verifications=[1 + 1e-6 * size for size in range(64)], calls=[1e-6] * 64)
    facts = {"pair": "tiny", "clock": "none", "rate": 1.5, "worth": 1e3, "card": {}}
    write_edges(folder, EdgeArtifact(edges=PRIOR, costs=[table], **facts))
    return str(folder)


@pytest.mark.parametrize(("kind", "changes"), DRAFTERS.values(), ids=DRAFTERS)
def test_cached_distributions_equal_a_fresh_forward_at_every_round(grafting, fresh, close, kind, changes):
    method = grafting(kind, **changes)

    assert check_lines(method, middle_of(method), fresh, close) > 100


@pytest.mark.parametrize("name", ["all-mid", "treegraft-no-nd", "treegraft-release", "treegraft-no-eg-keep"])
def test_they_do_whatever_is_reselected_or_deleted(grafting, fresh, close, name):
    method = grafting(name=name, vocab_size=5)

    assert check_lines(method, middle_of(method), fresh, close, PROMPTS[2:]) > 50


@pytest.mark.parametrize("kind", ["Llama", "Qwen2, windows", "50 tokens", "80 tokens"])
def test_those_of_a_cascade_do_too(grafting, fresh, close, kind):
    kind, changes = DRAFTERS[kind]
    method = grafting(kind, name="csd", **changes)

    assert check_lines(method, middle_of(method), fresh, close) > 100


@pytest.mark.parametrize("kind", ["Llama", "Qwen2, windows", "50 tokens", "80 tokens"])
def test_those_of_calibrated_grafting_do_too_however_often_it_calls(grafting, fresh, close, kind):
    kind, changes = DRAFTERS[kind]
    method = grafting(kind, name="treegraft-calibrated", **changes)

    assert check_lines(method, middle_of(method), fresh, close) > 100
    assert method.schedule().count(1) > 1


def test_a_small_neural_models_do_too(grafting, fresh, close):
    method = grafting(name="neural-small")

    assert check_lines(method, method.small, fresh, close) > 50


class LosesARow(TreeModel):
    """Commits one row too few: the last one is counted, and its place holds nothing."""

    def commit(self, rows):
        import torch

        super().commit(rows)
        with torch.inference_mode():
            for layer in self.engine._cache.layers:
                layer.keys[..., self.length - 1, :] = 0.0


class KeepsARow(TreeModel):
    """Commits one row too many: a rejected one stays in front of the last accepted one, which it replaces."""

    def commit(self, rows):
        others = [row for row in range(self.pending) if row not in rows]
        super().commit([*rows[:-1], *others[-1:]] if others and len(rows) > 1 else rows)


class NeverCatchesUp:
    """Drafts behind what it has seen, whatever was committed since."""

    def begin_round(self, context):
        super().begin_round([*context[: self.model.length], context[-1]])


class WrongAncestors:
    """Later nodes of a round see the rows that stand before theirs."""

    def evaluate(self, tree, nodes):
        visibility = self.nodes.visibility

        def by_index(tree, nodes):
            visible = visibility(tree, nodes)
            for place, row in enumerate(visible):
                seen = int(row.sum())
                own = visible.shape[1] - len(visible) + place
                row[:] = False
                row[max(0, own + 1 - seen) : own + 1] = True
            return visible

        self.nodes.visibility = by_index
        return super().evaluate(tree, nodes)


def corrupt(middle, mutant):
    """Put a mutant in the place of a drafter's model, or of its own class."""
    if issubclass(mutant, TreeModel):
        middle.model.__class__ = mutant
    else:
        middle.__class__ = type(mutant.__name__, (mutant, type(middle)), {})


@pytest.mark.parametrize("name", ["treegraft-fixed", "csd", "treegraft-calibrated"])
@pytest.mark.parametrize("mutant", [LosesARow, KeepsARow, NeverCatchesUp, WrongAncestors])
def test_the_check_of_distributions_fails_on_a_mutant(grafting, fresh, close, mutant, name):
    method = grafting(name=name)
    corrupt(middle_of(method), mutant)

    with pytest.raises(AssertionError):
        check_lines(method, middle_of(method), fresh, close)


CALL, SKIP = (1, 0, 1, 0, 1), (0, 0, 0, 0, 0)


def check_alternating(method, fresh_method, schedules):
    """Each draft equals that of a drafter that has just been given the whole context."""
    drafted = 0
    for seed, prompt in enumerate(PROMPTS):
        for number, context in enumerate(rounds(method, prompt, 6, schedules, seed)):
            fresh_method.models.target.begin(500)
            fresh_method.begin(context, 500)
            tell(fresh_method, schedules[number % len(schedules)])
            fresh_method.draft(context, 99, WATCH, [])
            ours, truth = method.drafted, fresh_method.drafted
            assert (ours.tokens, ours.parents) == (truth.tokens, truth.parents)
            assert ours.scores == pytest.approx(truth.scores, abs=1e-9)
            drafted += ours.origins.count("middle")
    return drafted


@pytest.mark.parametrize(
    "schedules",
    [(CALL, SKIP), (CALL, SKIP, SKIP, SKIP, CALL), (SKIP, (0, 0, 0, 0, 1), (0, 1, 0, 0, 0))],
    ids=["every other round", "three rounds of five", "late in a round"],
)
def test_a_drafter_that_is_called_now_and_then_proposes_what_a_fresh_one_does(grafting, schedules):
    method, fresh_method = grafting(dtype="float64"), grafting(dtype="float64")

    assert check_alternating(method, fresh_method, schedules) > 50

    corrupt(middle_of(method), NeverCatchesUp)
    with pytest.raises(AssertionError):
        check_alternating(method, fresh_method, schedules)


class Forgetful(CalibratedGrafting):
    """Calibrated grafting that begins every round as an answer's first."""

    def draft(self, context, remaining, watch, forwards):
        self.recent, self._throughput = Recent(), ThroughputEstimate(self._artifact.rate)
        self._costs = self._artifact.costs_at(1)
        return super().draft(context, remaining, watch, forwards)


def test_calibrated_grafting_that_calls_now_and_then_drafts_what_a_fresh_one_does(grafting):
    names = {"name": "treegraft-calibrated", "dtype": "float64"}
    method, fresh_method = grafting(**names), grafting(**names)
    # What either remembers of the answer is another: luck and rate must not tell them apart.
    for one in (method, fresh_method):
        one.__class__ = Forgetful

    assert check_alternating(method, fresh_method, (CALL, SKIP, SKIP, CALL)) > 50

    corrupt(middle_of(method), NeverCatchesUp)
    with pytest.raises(AssertionError):
        check_alternating(method, fresh_method, (CALL, SKIP, SKIP, CALL))


def test_a_cascade_drafts_what_one_does_that_has_just_been_given_the_whole_context(grafting):
    method, fresh_method = grafting(name="csd", dtype="float64"), grafting(name="csd", dtype="float64")

    assert check_alternating(method, fresh_method, [CALL]) > 50

    corrupt(middle_of(method), NeverCatchesUp)
    with pytest.raises(AssertionError):
        check_alternating(method, fresh_method, [CALL])


def test_tokens_that_are_not_common_are_never_drafted(grafting, monkeypatch):
    def most_drafted():
        method = grafting(vocab_size=80)
        return max(max(method.drafted.tokens) for prompt in PROMPTS for _ in rounds(method, prompt, 2))

    assert most_drafted() < 64

    monkeypatch.setattr(treegraft, "common_vocabulary", lambda target, drafter: drafter.vocab_size)
    assert most_drafted() >= 64  # the mutant: all that the drafter has


@pytest.mark.parametrize(
    ("name", "length"),
    [("treegraft-fixed", length) for length in (1, 36, 39, 40, 41, 60)]
    + [
        (name, length)
        for name in ("all-mid", "treegraft-release", "neural-small", "csd", "treegraft-calibrated")
        for length in (36, 41)
    ],
)
def test_a_drafter_with_a_shorter_context_stops_drafting_and_decoding_goes_on(
    llama, tiny, echo, method, hf_tokens, monkeypatch, free_calls, name, length
):
    drafter = echo(tiny(max_position_embeddings=40))
    own = {"artifact": free_calls} if name == "treegraft-calibrated" else {}
    decoder = method(name, llama, middle=drafter, small=drafter, width=4, **own)
    deepest, evaluate = [0], TreeModel.evaluate

    def record(self, tokens, depths, visible):
        if self.model is drafter:
            deepest.append(self.length + max(depths))
        return evaluate(self, tokens, depths, visible)

    monkeypatch.setattr(TreeModel, "evaluate", record)
    prompt = ([4, 8, 15, 16, 23, 42] * 10)[:length]

    generation = decoder.generate(prompt, DecodingParams(max_new_tokens=45))

    assert generation.token_ids == hf_tokens(llama, prompt, 45)
    assert max(deepest) < 40
    assert (len(deepest) > 1) == (length <= 40)  # the root itself has the last position
    last = generation.rounds[-1]
    assert name != "all-mid" or (last.drafted, last.schedule) == (0, [])
