"""Methods that a process registers itself, and which drafters methods need."""

from typing import get_args

import pytest

from methods.catalog import load_family, resolve
from methods.settings import Settings


def test_a_method_that_the_process_registered_itself_is_found_by_its_name():
    pytest.importorskip("torch")
    from methods.method import METHODS, Method, register_method

    @register_method("my-own")
    class MyOwn(Method):
        def generate(self, prompt_ids, params):
            raise AssertionError("nobody asks")

    try:
        spec = resolve("my-own")
        assert load_family(spec.family) is MyOwn
    finally:
        del METHODS._objects["my-own"]


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("autoregressive", ()),
        ("all-small", ()),
        ("all-mid", ("middle",)),
        ("csd", ("middle",)),
        ("assisted", ("middle",)),
        ("neural-small", ("middle", "small")),
    ],
)
def test_a_method_says_which_drafters_it_needs(name, needed):
    assert resolve(name).needed_drafters == needed


def test_each_small_drafter_of_the_settings_has_its_class():
    pytest.importorskip("torch")
    from methods.treegraft.method import SMALL_DRAFTERS

    assert {*SMALL_DRAFTERS} == {*get_args(Settings.model_fields["small"].annotation)}
