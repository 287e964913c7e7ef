"""CustomResourceDefinitions in a folder of YAML files."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import msgspec

from kqueue.documents import load_yaml


def read_definitions(folder: Path) -> list[dict[str, Any]]:
    """Read every CustomResourceDefinition in the `*.yaml` files of `folder`, in the order of the file names.

    The caller owns what it gets.

    Raises:
        OSError, yaml.YAMLError, TooMuchError: a file cannot be read, is no YAML, or is larger than a document may be.
    """
    texts = (path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yaml")))
    return [found for text in texts for found in msgspec.json.decode(_definitions_in(text))]


@functools.lru_cache(maxsize=64)
def _definitions_in(text: str) -> bytes:
    """Return the definitions of a YAML text as a JSON list; kept, because YAML takes a hundred times longer to read."""
    documents = load_yaml(text)
    return msgspec.json.encode([d for d in documents if d and d.get("kind") == "CustomResourceDefinition"])
