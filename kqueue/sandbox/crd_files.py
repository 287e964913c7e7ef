"""Where CustomResourceDefinitions lie: kqueue's own, and those of other projects whose controllers are played here."""

from __future__ import annotations

from pathlib import Path

from kqueue.documents import load_yaml
from kqueue.errors import ConfigError
from kqueue.sandbox.api import Object

_PACKAGE = Path(__file__).resolve().parent.parent

SIMULATED = Path(__file__).resolve().parent / "crds"
"""Kinds of other projects, as far as the simulated cluster plays their controllers."""


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


def load_crds(folder: Path | None = None) -> list[Object]:
    """Every CustomResourceDefinition of a folder (kqueue's own where none is named), in the order of the file names."""
    documents = (
        document
        for path in sorted((folder or crd_folder()).glob("*.yaml"))
        for document in load_yaml(path.read_text(encoding="utf-8"))
    )
    return [found for found in documents if found and found.get("kind") == "CustomResourceDefinition"]
