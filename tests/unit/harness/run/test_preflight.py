"""What a pair must have for the methods that a run asks for."""

import pytest

from foundation.errors import UserError
from harness.run.plan import make_plan


@pytest.mark.parametrize("name", ["all-mid", "csd"])
def test_a_configuration_that_its_pair_cannot_run_is_not_good(name):
    with pytest.raises(UserError, match=rf"{name}.*owner/name.*no middle"):
        make_plan(None, {"pair": "owner/name", "methods": [name], "data": "embedded", "limit": 1})
