"""YAML as files for people should be: plain values, and no key twice in one place."""

from __future__ import annotations

from typing import Any

import yaml


class _OnceLoader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"the key {key!r} stands twice; remove one")
        return super().construct_mapping(node, deep)


def read_yaml(text: str) -> Any:
    """Return what a YAML text holds; a key that stands twice, of which the second would silently win, is refused.

    Raises:
        yaml.YAMLError: it is not YAML, or a key stands twice.
        ValueError: a date that does not exist, a number beyond all bounds.
        RecursionError: too deep.
    """
    return _OnceLoader(text).get_single_data()
