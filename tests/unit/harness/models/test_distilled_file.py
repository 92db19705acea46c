"""A drafter's folder: int8 rows within half a step, and one line about whatever does not fit."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from foundation.digests import file_digest
from foundation.errors import UserError
from harness.distil.student import trained_state
from harness.models.distilled import CARD, WEIGHTS, Card, load_distilled, read_card, write_distilled
from harness.models.shared_layers import sharing_layers
from methods.core.limited_head import LimitedHead

pytestmark = pytest.mark.torch

LAYERS = [0, 2]
TOKENS = [1, 5, 40]
MATRIX = "layers.1.mlp.up_proj.weight"


@pytest.fixture
def state(llama):
    return trained_state(sharing_layers(llama, LAYERS, "layers"))


@pytest.fixture
def write(tmp_path, state):
    """Write a drafter of two of the tiny model's layers; return its folder."""

    def write(tokens=TOKENS):
        card = Card(
            target={"name": "tiny", "origin": "nowhere", "sha256": "its-digest"},
            licence="none",
            layers=LAYERS,
            vocabulary=len(tokens),
            floor=-9.5,
            recipe={},
            text={},
            figures={},
            versions={},
        )
        write_distilled(tmp_path / "drafter", state, torch.tensor(tokens, dtype=torch.int64), card)
        return tmp_path / "drafter"

    return write


def check_weights(state, drafter):
    """Matrices within half a step of their row, vectors as they were."""
    read = trained_state(drafter)
    assert read.keys() == state.keys()
    for name, exact in state.items():
        if exact.ndim == 1:
            assert torch.equal(read[name], exact)
        else:
            step = exact.abs().amax(dim=1, keepdim=True) / 127
            assert ((read[name] - exact).abs() <= 0.5001 * step).all(), name
            assert (read[name] != exact).any()


def test_weights_come_back_within_half_a_step_of_their_row(llama, state, write):
    check_weights(state, load_distilled(llama, "its-digest", write()))


@pytest.mark.parametrize(
    ("owner", "name", "mutant"),
    [
        (torch.Tensor, "round", torch.Tensor.trunc),
        (torch.Tensor, "amax", lambda weights, dim: weights.max().expand(len(weights))),  # a step for the whole matrix
    ],
)
def test_the_check_of_weights_fails_on_a_mutant(llama, state, write, monkeypatch, owner, name, mutant):
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, mutant)
        folder = write()
    with pytest.raises(AssertionError):
        check_weights(state, load_distilled(llama, "its-digest", folder))


def test_a_row_of_zeros_stays_one(llama, state, write):
    state[MATRIX] = state[MATRIX].clone()
    state[MATRIX][3] = 0.0

    read = trained_state(load_distilled(llama, "its-digest", write()))

    assert (read[MATRIX][3] == 0).all()
    assert all(value.isfinite().all() for value in read.values())


def test_matrices_take_a_byte_a_weight(state, write):
    tensors = load_file(write() / WEIGHTS)

    assert {tensors[name].dtype for name, value in state.items() if value.ndim == 2} == {torch.int8}
    assert {tensors[name].dtype for name, value in state.items() if value.ndim == 1} == {torch.float32}


def test_the_head_is_the_targets_rows_of_the_known_tokens(llama, write):
    head = load_distilled(llama, "its-digest", write()).get_output_embeddings()

    assert isinstance(head, LimitedHead)
    assert head.token_ids.tolist() == TOKENS
    assert (head.vocab_size, head.floor) == (64, -9.5)
    assert torch.equal(head.weight, llama.lm_head.weight[TOKENS])


def test_without_tokens_the_head_is_the_targets_own(llama, write):
    assert load_distilled(llama, "its-digest", write(tokens=[])).get_output_embeddings() is llama.lm_head


def test_a_drafter_has_the_targets_type_and_leaves_the_target_as_it_was(tiny, state, write):
    target = tiny(dtype="bfloat16")
    before = {name: value.clone() for name, value in target.state_dict().items()}

    drafter = load_distilled(target, "its-digest", write())

    assert {value.dtype for value in trained_state(drafter).values()} == {torch.bfloat16}
    assert drafter.get_output_embeddings().weight.dtype == torch.bfloat16
    assert target.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in target.state_dict().items())
    assert not isinstance(target.get_output_embeddings(), LimitedHead)


def test_a_card_comes_back_as_it_was_written(write):
    card = read_card(write())

    assert (card.layers, card.vocabulary, card.floor) == (LAYERS, 3, -9.5)
    assert card.target.sha256 == "its-digest"


def put(tensors, file):
    """Write other tensors under a card that knows them."""
    save_file(tensors, file)
    card = file.parent / CARD
    card.write_text(json.dumps({**json.loads(card.read_text()), "sha256": file_digest(file)}))


def refusal(llama, folder, digest="its-digest"):
    with pytest.raises(UserError) as caught:
        load_distilled(llama, digest, folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("digest", ["", "another-digest"])
def test_another_targets_drafter_is_refused(llama, write, digest):
    folder = write()

    assert refusal(llama, folder, digest).startswith(
        f"{folder}: distilled from nowhere, other weights than this target"
    )


def test_a_folder_without_a_card_is_refused(llama, tmp_path, write):
    (write() / CARD).unlink()

    for folder in (tmp_path / "drafter", tmp_path / "nowhere"):
        assert refusal(llama, folder).startswith(f"{folder / CARD}: no such file")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"schema_version": 2}', b'{"layers": [0]}'])
def test_a_broken_card_is_refused(llama, write, content):
    folder = write()
    (folder / CARD).write_bytes(content)

    assert refusal(llama, folder).startswith(f"{folder / CARD}: unreadable (")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("schema_version", 2, "unreadable"),
        ("mood", "good", "unreadable"),
        ("layers", [0, 3], "layers: [0, 3] are not among the target's 3 layers"),
        ("layers", [0, 1, 2], f"{WEIGHTS}: not this target's layers"),
        ("layers", [0], f"{WEIGHTS}: not this target's layers"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(llama, write, key, value, words):
    folder = write()
    card = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps({**card, key: value}))

    assert words in refusal(llama, folder)


@pytest.mark.parametrize("size", [None, 0, 7, 1000])
def test_weights_that_are_missing_or_cut_short_are_refused(llama, write, size):
    file = write() / WEIGHTS
    content = file.read_bytes()
    file.unlink()
    if size is not None:
        file.write_bytes(content[:size])

    assert refusal(llama, file.parent).startswith(f"{file}: cannot be read (")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        (MATRIX, None),
        ("norm.weight", None),
        ("layers.0.extra.weight", (3,)),
        ("norm.bias", (32,)),
        ("norm.weight", (33,)),
    ],
)
def test_tensors_that_are_missing_or_of_no_such_layer_are_refused(llama, write, name, shape):
    file = write() / WEIGHTS
    tensors = load_file(file)
    if shape is None:
        del tensors[name]
        tensors.pop(f"{name}.scale", None)
    else:
        tensors[name] = torch.zeros(shape)
    put(tensors, file)

    line = refusal(llama, file.parent)
    assert line.startswith(f"{file}: not this target's layers (")
    assert name.partition(".")[2] in line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("layers.0.mlp.up_proj.weight.scale"), "a matrix without its scale"),
        (lambda tensors: tensors.update({"norm.weight.scale": torch.ones(32)}), "a scale without its matrix"),
        (lambda tensors: tensors.update({"layers.0.mlp.up_proj.weight.scale": torch.ones(1)}), "not one number a row"),
        (
            lambda tensors: tensors.update({"embed_tokens.weight": torch.ones(64, 32)}),
            "which no drafter has of its own",
        ),
        (lambda tensors: tensors.pop("token_ids"), "its token_ids are not the 3 tokens of its card"),
        (lambda tensors: tensors.update(token_ids=torch.tensor([1, 2])), "its token_ids are not the 3 tokens"),
        (lambda tensors: tensors.update(token_ids=torch.tensor([1, 2, 64])), "its token_ids are not the 3 tokens"),
        (lambda tensors: tensors.update(token_ids=torch.tensor([-1, 2, 3])), "its token_ids are not the 3 tokens"),
        (lambda tensors: tensors.update(token_ids=torch.tensor([2, 1, 3])), "its token_ids are not the 3 tokens"),
    ],
)
def test_a_file_that_does_not_fit_together_is_refused(llama, write, change, message):
    file = write() / WEIGHTS
    tensors = load_file(file)
    change(tensors)
    put(tensors, file)

    assert message in refusal(llama, file.parent)


@pytest.mark.parametrize("target", [{}, {"name": "a", "sha256": "b"}, {"name": "a", "origin": "b", "sha256": 3}])
def test_a_card_that_names_no_target_is_refused(llama, write, target):
    file = write() / CARD
    file.write_text(json.dumps({**json.loads(file.read_text()), "target": target}))

    assert f"{file}: unreadable (" in refusal(llama, file.parent)


def test_weights_that_are_not_the_cards_are_refused(llama, write):
    file = write() / WEIGHTS
    tensors = load_file(file)
    tensors["norm.weight"] += 1
    save_file(tensors, file)

    assert "not the weights of the card beside it" in refusal(llama, file.parent)
