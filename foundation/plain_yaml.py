"""YAML files: plain values, duplicate keys refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from foundation.errors import UserError

_NUMBERS = {
    "tag:yaml.org,2002:int": r"^[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|[1-9][0-9_]*|0)$",
    "tag:yaml.org,2002:float": r"""^[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))([eE][-+]?[0-9]+)?$
        |^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$""",
}
_LARGEST = 2**63  # beyond it no field has a meaning, and printing one may be refused


class _OnceLoader(yaml.SafeLoader):
    """Duplicate keys, numbers beyond 64 bits and `1:30`, which YAML 1.1 reads as 90, are not taken silently."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        value: int = super().construct_yaml_int(node)
        if abs(value) >= _LARGEST:
            raise yaml.YAMLError(f"the number in line {node.start_mark.line + 1} has more than 64 bits")
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"the key {key!r} stands twice; remove one")
        return super().construct_mapping(node, deep)


_OnceLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NUMBERS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_OnceLoader.add_constructor("tag:yaml.org,2002:int", _OnceLoader.construct_yaml_int)
for _tag, _pattern in _NUMBERS.items():
    _OnceLoader.add_implicit_resolver(_tag, re.compile(_pattern, re.VERBOSE), list("-+0123456789."))


def read_yaml(text: str) -> Any:
    """Return the values of a YAML text; a duplicate key, which would silently win over the first, is refused.

    Raises yaml.YAMLError, ValueError (a date that does not exist, a number out of range) or RecursionError (too deep).
    """
    return _OnceLoader(text).get_single_data()


def yaml_values(text: str, origin: str) -> Any:
    """Return the values of a YAML text; raises UserError, which names `origin`, if it is not YAML."""
    try:
        return read_yaml(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:  # an impossible date is a ValueError
        raise UserError(f"{origin}: not YAML ({' '.join(str(error).split())}); fix the file") from error


def keys_of(text: str, origin: str, example: str) -> dict[str, Any]:
    """Return the mapping in a YAML text; raises UserError with `origin` and, if it holds no keys, an `example`."""
    values = yaml_values(text, origin)
    if not isinstance(values, dict):
        raise UserError(f"{origin}: holds no keys; write for example `{example}`")
    return values


def read_keys(path: Path, example: str) -> dict[str, Any]:
    """Return the mapping in a YAML file; raises UserError if it cannot be read; see `keys_of`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give an existing YAML file") from error
    except ValueError as error:  # not UTF-8
        raise UserError(f"{path}: not YAML ({error}); fix the file") from error
    return keys_of(text, str(path), example)
