"""Facts of cascade speculative drafting."""

from methods.facts import MethodFacts
from methods.rivals.csd.cascade import CascadeOptions

FACTS = {"csd": MethodFacts(drafters=("middle",), options=CascadeOptions)}
"""By family."""
