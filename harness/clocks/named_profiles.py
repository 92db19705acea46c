"""The profile of a clock: from a file, or from a machine and the shapes of a pair's models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from foundation.errors import UserError
from foundation.registry import unknown_name
from foundation.roles import Role
from hardware_profiles.machine import Datasheet, Publication, changed_machine, get_machine, machine_names
from hardware_profiles.profile import Profile, get_profile, profile_names
from hardware_profiles.roofline import Architecture, Family, known_architectures
from harness.models.pair import ModelSource, Pair, get_pair

EXAMPLE = "qwen3-32b-0.6b"

_DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
_FAMILIES = get_args(Family)


def named_profile(name: str, pair: Pair | None = None) -> Profile:
    """Return a profile by the name behind `profile:`.

    Args:
        name: a packaged profile, a profile's YAML file, or a machine (packaged or YAML file) with or without `/PAIR`.
        pair: the pair of a machine named without one.
    """
    place, named = _split(name)
    machine = get_machine(place)
    if machine is None and named is None:
        if not name.endswith((".yaml", ".yml")) and name not in profile_names():
            unknown = unknown_name("profile", name, [*profile_names(), *machine_names()])
            raise UserError(f"{unknown} (or a profile's YAML file)")
        return get_profile(name)
    if machine is None:
        raise UserError(f"profile {place}: of pair {get_profile(place).pair} alone; leave /{named} out")
    return _of_pair(machine, name, pair if named is None else get_pair(named))


def changed_profile(
    name: str, changes: Mapping[str, Any], *, called: str, file: str, origin: str, pair: Pair | None = None
) -> Profile:
    """Return the profile behind a name, with some values of a packaged machine changed.

    Args:
        name: a packaged machine, with or without `/PAIR`.
        changes: new values, by the machine's keys.
        called: the changed machine's name.
        file: the file that gives the changes, recorded as their source.
        origin: what an error names.
        pair: the pair of a machine named without one.
    """
    place, named = _split(name)
    if place not in machine_names():
        known = ", ".join(machine_names())
        raise UserError(f"{origin}: {place} is no packaged machine, and only those can be changed ({known})")
    machine = changed_machine(place, changes, name=called, file=file, origin=origin)
    return _of_pair(machine, name, pair if named is None else get_pair(named))


def _of_pair(machine: Datasheet | Publication, name: str, pair: Pair | None) -> Profile:
    """Return a machine's profile for a pair; errors quote `name`."""
    if pair is None:
        raise UserError(f"profile {name}: needs a pair whose latencies it gives, as in profile:{name}/{EXAMPLE}")
    roles: dict[Role, ModelSource | None] = {"target": pair.target, "middle": pair.middle, "small": pair.small}
    sources = {role: source for role, source in roles.items() if source is not None}
    if isinstance(machine, Publication):
        return machine.profile(pair.name, {role: source.hub for role, source in sources.items()})
    target = _architecture(pair.target, f"pair {pair.name}: target")
    models = {
        role: _derived(source, target) if source.is_derived else _architecture(source, f"pair {pair.name}: {role}")
        for role, source in sources.items()
    }
    return machine.profile(pair.name, _DTYPES[pair.dtype], models)


def _split(name: str) -> tuple[str, str | None]:
    """Return the names of machine and pair, None for no pair; both may be files, with slashes."""
    if name.endswith("/"):
        raise UserError(f"profile {name}: names no pair behind the slash; name one, as in profile:{name}{EXAMPLE}")
    first, _, rest = name.partition("/")
    if first in machine_names() or first in profile_names():
        return first, rest or None
    for suffix in (".yaml/", ".yml/"):
        file, slash, rest = name.partition(suffix)
        if slash:
            return file + suffix.rstrip("/"), rest
    return name, None


def _architecture(source: ModelSource, where: str) -> Architecture:
    """Return the architecture of a model with its own weights."""
    known = known_architectures().get(source.hub or source.package or "")
    if known is not None:
        return known
    if source.hub is None and source.path is None:
        raise UserError(f"{where}: its architecture is not known; name a pair, as in profile:h100-roofline/{EXAMPLE}")
    return _configured(str(source.hub or source.path), source.revision, where)


def _configured(name: str, revision: str | None, where: str) -> Architecture:
    """Return the architecture in a model's configuration."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(name, **({} if revision is None else {"revision": revision}))
    except Exception as error:  # a configuration can be broken in ways that its reader does not foresee
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{where}: {name}: no configuration to read ({reason}); name a pair, as in profile:h100-roofline/{EXAMPLE}"
        ) from error
    if config.model_type not in _FAMILIES or getattr(config, "quantization_config", None):
        raise UserError(
            f"{where}: {name}: a roofline knows {', '.join(_FAMILIES)} without quantisation alone; name a pair, as in "
            f"profile:h100-roofline/{EXAMPLE}"
        )
    heads = config.num_attention_heads
    return Architecture(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=heads,
        kv_heads=config.num_key_value_heads or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        intermediate=config.intermediate_size,
        vocabulary=config.vocab_size,
        tied=config.tie_word_embeddings,
        family=config.model_type,
        source=f"config.json of {name}",
    )


def _derived(source: ModelSource, target: Architecture) -> Architecture:
    """Return the architecture of a drafter made of its target."""
    if source.target_layers is not None:
        origin = f"layers of the target: {target.source}"
        return target.model_copy(update={"layers": len(source.target_layers), "source": origin, "shared": True})
    from harness.models.distilled import read_card
    from harness.models.loading import distilled_folder

    card = read_card(distilled_folder(str(source.distilled)))
    origin = f"card of {source.distilled}; {target.source}"
    changes = {"layers": len(card.layers), "head_rows": card.vocabulary or None, "source": origin}
    return target.model_copy(update=changes)
