import pytest

from foundation.errors import UserError
from foundation.registry import Registry, unknown_name


@pytest.fixture
def fruits():
    registry = Registry("fruit", "treegraft.fruits")
    registry.add("apple", "an apple")
    registry.add("apricot", "an apricot")
    return registry


def failing(error):
    def load():
        raise error

    return load


@pytest.mark.parametrize(
    ("name", "hint"),
    [("aple", "did you mean apple?"), ("apricto", "did you mean apricot?"), ("zzz", "known: apple, apricot")],
)
def test_an_unknown_name_is_answered_with_the_nearest_or_with_all(fruits, name, hint):
    with pytest.raises(UserError, match=f"unknown fruit '{name}'; .*{hint}".replace("?", r"\?")):
        fruits.get(name)


def test_hints_are_few():
    message = str(unknown_name("number", "number", [f"number{index}" for index in range(9)]))
    assert message.count(",") == 2


def test_registering_one_object_twice_is_fine_and_two_objects_are_not(fruits):
    fruits.add("apple", fruits.get("apple"))
    with pytest.raises(UserError, match="two fruits are called 'apple'"):
        fruits.add("apple", "another apple")


def test_a_decorator_registers_and_returns_its_object(fruits):
    @fruits.register("pear")
    def pear():
        return "a pear"

    assert fruits.get("pear") is pear
    assert pear() == "a pear"


def test_a_plug_in_is_named_without_being_loaded_and_loaded_when_asked_for(fruits, points, point):
    loads = []
    points(point("plum", lambda: loads.append(1) or "a plum"))
    assert fruits.names() == ["apple", "apricot", "plum"]
    assert loads == []
    assert fruits.get("plum") == "a plum"


@pytest.mark.parametrize("error", [ImportError("no stone"), AttributeError("thing"), SyntaxError("odd"), KeyError("k")])
def test_a_plug_in_that_does_not_load_is_named_with_the_reason(fruits, points, point, error):
    points(point("plum", failing(error), "orchard:plum"))
    with pytest.raises(UserError, match="fruit 'plum': plug-in orchard:plum does not load") as caught:
        fruits.get("plum")
    assert str(error.args[0]) in str(caught.value)
    assert fruits.get("apple") == "an apple"


def test_two_plug_ins_of_one_name_are_both_named(fruits, points, point):
    points(point("plum", lambda: 1, "orchard:plum"), point("plum", lambda: 2, "market:plum"))
    with pytest.raises(UserError, match="fruit 'plum' is claimed by orchard:plum, market:plum"):
        fruits.get("plum")


def test_a_plug_in_cannot_take_a_name_of_ours(fruits, points, point):
    points(point("apple", lambda: "a false apple"))
    with pytest.raises(UserError, match="two fruits are called 'apple'"):
        fruits.get("apple")
