"""What a model refuses is told as one fault: the first, and a misspelt key before what it misspells."""

from typing import Annotated

import pytest
from pydantic import Field, ValidationError

from foundation.strict_model import FiniteModel, FromList, StrictModel, first_fault


class Inner(FiniteModel):
    share: float = Field(ge=0)


class Outer(StrictModel):
    name: str
    parts: Annotated[tuple[Inner, ...], FromList] = ()


def fault_of(values, model=Outer):
    with pytest.raises(ValidationError) as caught:
        model.model_validate(values)
    return first_fault(caught.value)


def test_a_fault_names_the_place_what_is_wrong_and_what_was_given():
    fault = fault_of({"name": "a", "parts": [{"share": 1}, {"share": -2}]})
    assert (fault.key, fault.given) == ("parts.1.share", -2)
    assert fault.line() == "parts.1.share: Input should be greater than or equal to 0"


def test_a_misspelt_key_comes_before_the_one_that_is_missing_for_it():
    fault = fault_of({"nmae": "a"})
    assert (fault.key, fault.is_unknown_key, fault.is_missing_key) == ("nmae", True, False)
    assert fault_of({}).is_missing_key


@pytest.mark.parametrize("share", [True, "1", None, [1], "1:30"])
def test_a_value_of_another_type_is_no_number(share):
    assert fault_of({"name": "a", "parts": [{"share": share}]}).key == "parts.0.share"


def test_a_long_value_is_cut_where_it_is_shown():
    shown = fault_of({"name": ["x" * 500]}).shown
    assert shown.startswith("['xxx")
    assert len(shown) == 101


def test_values_that_are_wrong_as_a_whole_have_no_key():
    fault = fault_of("text")
    assert fault.key == ""
    assert fault.line("file").startswith("file: Input should be")
    assert fault.line().startswith("Input should be")


def test_fields_cannot_change_and_numbers_are_finite():
    with pytest.raises(ValidationError):
        Outer(name="a").name = "b"
    assert fault_of({"share": float("inf")}, Inner).key == "share"
