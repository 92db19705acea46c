"""Training starts from the target's layers, changes the student's alone, and goes on exactly where it stopped."""

import copy

import pytest
import torch

from foundation.errors import UserError
from harness.distil.batched_generation import Writer
from harness.distil.dataset import Dataset
from harness.distil.sequence_templates import Part, Segment
from harness.distil.settings import DistilSettings
from harness.distil.shards import TextFolder
from harness.distil.student import student_of, trained_state
from harness.distil.training import Trainer

pytestmark = pytest.mark.torch

TOKENS = torch.arange(0, 64, 2)


@pytest.fixture(scope="module")
def target(llama):
    """The tiny model as a loaded target is: nothing of it is trainable."""
    return copy.deepcopy(llama).requires_grad_(False)


@pytest.fixture(scope="module")
def text(target, prompts, tmp_path_factory):
    """Write some text with the target; return its files."""
    folder = tmp_path_factory.mktemp("text")
    writer = Writer(target, frozenset(range(5, 64, 9)))
    scripts = [[Segment(Part.GIVEN, tuple(prompt)), Segment(Part.ANSWER, limit=20)] for prompt in prompts]
    TextFolder._save(folder / "00000.safetensors", "free", writer.write(scripts, seed=0))
    return sorted(folder.glob("*.safetensors"))


@pytest.fixture
def training(target, text, tmp_path):
    """Build a trainer over a fresh student, whose state lies in one folder."""

    def build(layers=(0, 2), tokens=TOKENS, dataset=Dataset, save_every=2, **changes):
        settings = {"epochs": 3, "batch_tokens": 256, "learning_rate": 3e-3, "warmup": 2, **changes}
        recipe = DistilSettings(layers=list(layers), out="nowhere", **settings)
        student = student_of(target, layers)
        head = target.lm_head.weight[tokens]
        return student, Trainer(student, head, dataset(text), recipe, tmp_path, save_every)

    return build


def trained(training, **options):
    """Train to the end, or until it stops; return weights and what progress was told."""
    student, trainer = training(**options)
    told = []
    trainer.train(told.append)
    return {name: value.clone() for name, value in trained_state(student).items()}, told


class StopError(Exception):
    pass


def stopped_after(training, steps, **options):
    """Stop before the step's state can have been saved; return how many steps there would be."""
    _, trainer = training(**options)
    done = []

    def tell(progress):
        done.append(progress)
        if len(done) == steps:
            raise StopError

    with pytest.raises(StopError):
        trainer.train(tell)
    return trainer.steps


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_training_that_was_stopped_ends_with_the_weights_of_one_that_was_not(training, tmp_path, steps):
    whole, told = trained(training)
    (tmp_path / "training.safetensors").unlink()

    assert stopped_after(training, steps) == len(told) > 9
    resumed, retold = trained(training)

    saved = (steps - 1) // 2 * 2
    assert same(resumed, whole)
    assert [one.loss for one in retold] == [one.loss for one in told][saved:]
    assert (retold[0].done, {one.done for one in retold[1:]}) == (saved + 1, {1})


def test_the_check_of_resumed_weights_fails_where_the_optimisers_state_is_lost(training, tmp_path, monkeypatch):
    whole, _ = trained(training)
    (tmp_path / "training.safetensors").unlink()
    stopped_after(training, 7)

    monkeypatch.setattr(torch.optim.AdamW, "load_state_dict", lambda self, state: None)

    assert not same(trained(training)[0], whole)


def test_training_that_is_finished_is_not_done_again(training):
    whole, _ = trained(training)

    weights, told = trained(training)

    assert same(weights, whole)
    assert told == []


@pytest.mark.parametrize("change", [{"learning_rate": 1e-3}, {"seed": 1}, {"epochs": 2}, {"elsewhere": 0.5}])
def test_another_recipe_begins_anew(training, tmp_path, change):
    trained(training)

    weights, told = trained(training, **change)

    assert len(told) == training(**change)[1].steps
    (tmp_path / "training.safetensors").unlink()
    assert same(weights, trained(training, **change)[0])


def test_training_changes_the_students_layers_and_norm_alone(target, training):
    before = {name: value.clone() for name, value in target.state_dict().items()}
    student, trainer = training()
    begun = {name: value.clone() for name, value in trained_state(student).items()}

    trainer.train(lambda progress: None)

    assert same(target.state_dict(), before)
    assert not any(torch.equal(value, begun[name]) for name, value in trained_state(student).items())
    assert same(begun, {name: before[source] for name, source in sources(begun)})
    assert torch.equal(student.get_input_embeddings().weight, target.get_input_embeddings().weight)


def sources(names):
    """Pair names of a student's tensors with those of the target's; it has its layers 0 and 2."""
    return [(name, f"model.{name.replace('layers.1.', 'layers.2.')}") for name in names]


def first_agreement(training, **options):
    """Return the agreement of the first batch, before anything was learnt."""
    return trained(training, **options)[1][0].agreement


def test_a_student_of_all_layers_is_the_target_itself(training):
    assert first_agreement(training, layers=(0, 1, 2)) == 1.0
    assert first_agreement(training, layers=(0, 1, 2), tokens=torch.arange(64), seed=1) == 1.0
    assert first_agreement(training, layers=(0, 2)) < 0.9


class OneLater(Dataset):
    """The mutant: the teacher says what comes behind the token that is to be predicted."""

    def padded_batch(self, batch):
        padded = super().padded_batch(batch)
        padded.hidden[:, :-1] = padded.hidden[:, 1:].clone()
        return padded


def test_with_a_teacher_that_is_one_token_ahead_it_is_not(training):
    assert first_agreement(training, layers=(0, 1, 2), dataset=OneLater) < 0.9


def test_the_loss_falls(training):
    _, told = trained(training, epochs=8)

    losses = [one.loss for one in told]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_layers_that_the_target_lacks_are_refused(target):
    with pytest.raises(UserError, match=r"^--layers: \[0, 3\] are not among the target's 3 layers"):
        student_of(target, [0, 3])
