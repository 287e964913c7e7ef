"""config/crd is what the models say, and small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kqueue.api.definitions import KINDS, OPTIONAL_KINDS, crd
from kqueue.api.model import Resource
from tools.crds import CHART, FOLDER, files, optional_files


@pytest.mark.parametrize("folder", [FOLDER, CHART], ids=["config", "chart"])
def test_the_files_are_what_the_models_say(folder: Path) -> None:
    """`make crds` would write nothing."""
    assert {p.name: p.read_text() for p in folder.glob("*.yaml")} == files()
    assert {p.name: p.read_text() for p in (folder / "optional").glob("*.yaml")} == optional_files()


@pytest.mark.parametrize("kind", [*KINDS, *OPTIONAL_KINDS], ids=lambda kind: kind.__name__)
def test_a_crd_fits_into_a_plain_kubectl_apply(kind: type[Resource]) -> None:
    """kubectl keeps the whole object in an annotation of at most 256 KiB."""
    assert len(json.dumps(crd(kind))) < 256 * 1024
