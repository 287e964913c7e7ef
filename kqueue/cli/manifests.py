"""Manifests that commands read from files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

JSON = dict[str, Any]


def manifests_in(file: str) -> list[JSON]:
    """Return the objects in a file, those of a List one by one; `-` is standard input.

    Raises:
        ConfigError: the file cannot be read, or has something else than objects.
    """
    import yaml

    from kqueue.documents import load_yaml
    from kqueue.errors import ConfigError

    shown = "standard input" if file == "-" else file
    try:
        text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        documents = load_yaml(text)
    except OSError as e:
        raise ConfigError(f"{shown} cannot be read: {e.strerror or e}") from e
    except (yaml.YAMLError, ValueError) as e:
        raise ConfigError(f"{shown} is not YAML that can be read: {e}") from e
    found: list[JSON] = []
    for document in documents:
        is_list = isinstance(document, dict) and document.get("kind") == "List"
        found += (document.get("items") or []) if is_list else [document]
    if not found or not all(isinstance(obj, dict) for obj in found):
        raise ConfigError(f"{shown} must have one or several objects, as kubectl apply takes them")
    return found
