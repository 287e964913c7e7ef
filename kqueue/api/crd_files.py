"""The files of kqueue's own CustomResourceDefinitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kqueue.errors import ConfigError
from kqueue.kube.definitions import read_definitions

_PACKAGE = Path(__file__).resolve().parent.parent


def crd_folder() -> Path:
    """Return the folder with one YAML file per kind.  Raises ConfigError when neither place has it."""
    places = (_PACKAGE / "_crds", _PACKAGE.parent / "config" / "crd")
    for place in places:
        if any(place.glob("*.yaml")):
            return place
    looked = " and ".join(map(str, places))
    raise ConfigError(
        f"no CustomResourceDefinitions in {looked}: run `make crds` in a checkout, or install kqueue again"
    )


def load_crds() -> list[dict[str, Any]]:
    """Read kqueue's CustomResourceDefinitions, in the order of the file names.  Raises as `crd_folder` does."""
    return read_definitions(crd_folder())
