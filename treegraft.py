"""The public face of treegraft-bench: what users and plug-ins may rely on."""

from harness.errors import UserError
from harness.results import Manifest, Row, load_rows
from harness.run import Outcome, run
from methods.core.generation import Forward, Generation, Round, Spans
from methods.core.model import TreeModel
from methods.core.sampling import DecodingParams, Sampler
from methods.core.stopping import Stopper
from methods.core.tree import DraftTree
from methods.core.verify import walk
from methods.method import Method, Models, PromptError, register_method
from methods.schedulers.scheduler import BoundedScheduler, DraftState, Latency, Scheduler, register_scheduler
from methods.settings import Settings
from methods.tree_method import TreeMethod
from methods.treegraft import TreeGraft

__all__ = [
    "BoundedScheduler",
    "DecodingParams",
    "DraftState",
    "DraftTree",
    "Forward",
    "Generation",
    "Latency",
    "Manifest",
    "Method",
    "Models",
    "Outcome",
    "PromptError",
    "Round",
    "Row",
    "Sampler",
    "Scheduler",
    "Settings",
    "Spans",
    "Stopper",
    "TreeGraft",
    "TreeMethod",
    "TreeModel",
    "UserError",
    "load_rows",
    "register_method",
    "register_scheduler",
    "run",
    "walk",
]
