"""Methods that a process registers itself, and what a pair must have for those it asks for."""

import pytest

from harness.errors import UserError
from harness.run import make_plan
from methods.catalog import load_family, needed_drafters, resolve


def test_a_method_that_the_process_registered_itself_is_found_by_its_name():
    pytest.importorskip("torch")
    from methods.method import METHODS, Method, register_method

    @register_method("my-own")
    class MyOwn(Method):
        def generate(self, prompt_ids, params):
            raise AssertionError("nobody asks")

    try:
        spec = resolve("my-own", definitions={}, pair={}, config={}, flags={})
        assert load_family(spec.family) is MyOwn
    finally:
        del METHODS._objects["my-own"]


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("autoregressive", []),
        ("all-small", []),
        ("all-mid", ["middle"]),
        ("csd", ["middle"]),
        ("assisted", ["middle"]),
        ("neural-small", ["middle", "small"]),
    ],
)
def test_a_method_says_which_drafters_it_needs(name, needed):
    assert needed_drafters(resolve(name, definitions={}, pair={}, config={}, flags={})) == needed


@pytest.mark.parametrize("name", ["all-mid", "csd"])
def test_a_configuration_that_its_pair_cannot_run_is_not_good(name):
    with pytest.raises(UserError, match=rf"{name}.*owner/name.*no middle"):
        make_plan(None, {"pair": "owner/name", "methods": [name], "data": "embedded", "limit": 1})
