"""The files of CustomResourceDefinitions: where kqueue's own are, and how those of a folder are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kqueue.documents import load_yaml
from kqueue.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent.parent


def crd_folder() -> Path:
    """The folder with one YAML file per kind.  Raises ConfigError when neither place has it."""
    places = (_PACKAGE / "_crds", _PACKAGE.parent / "config" / "crd")
    for place in places:
        if any(place.glob("*.yaml")):
            return place
    looked = " and ".join(map(str, places))
    raise ConfigError(
        f"no CustomResourceDefinitions in {looked}: run `make crds` in a checkout, or install kqueue again"
    )


def load_crds(folder: Path | None = None) -> list[dict[str, Any]]:
    """Every CustomResourceDefinition of a folder (kqueue's own where none is named), in the order of the file names."""
    documents = (
        document
        for path in sorted((folder or crd_folder()).glob("*.yaml"))
        for document in load_yaml(path.read_text(encoding="utf-8"))
    )
    return [found for found in documents if found and found.get("kind") == "CustomResourceDefinition"]
