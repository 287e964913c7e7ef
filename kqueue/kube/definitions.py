"""CustomResourceDefinitions in a folder of YAML files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kqueue.documents import load_yaml


def read_definitions(folder: Path) -> list[dict[str, Any]]:
    """Read every CustomResourceDefinition in the `*.yaml` files of `folder`, in the order of the file names.

    Raises:
        OSError, yaml.YAMLError, TooMuchError: a file cannot be read, is no YAML, or is larger than a document may be.
    """
    documents = (
        document for path in sorted(folder.glob("*.yaml")) for document in load_yaml(path.read_text(encoding="utf-8"))
    )
    return [found for found in documents if found and found.get("kind") == "CustomResourceDefinition"]
