"""Renders the chart with the helm that `make controlplane` builds."""

from __future__ import annotations

import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.fast_yaml import documents
from tests.integration.controlplane import binaries

Object = dict[str, Any]
CHART = Path(__file__).resolve().parents[3] / "charts" / "kqueue"
NAMESPACE = "kueue-system"
_SOURCE = re.compile(r"^# Source: kqueue/templates/(\S+)$", re.MULTILINE)


def helm(*arguments: str, values: Object | None = None) -> subprocess.CompletedProcess[str]:
    """Run helm; the test is left out where there is none.  `values` are given as a file would give them."""
    program = binaries.folder() / "helm"
    if not os.access(program, os.X_OK):
        missing = f"no helm: {binaries.REMEDY}"
        pytest.fail(missing) if binaries.required() else pytest.skip(missing)
    given = [] if values is None else ["--values", "-"]
    text = None if values is None else json.dumps(values)
    return subprocess.run(
        [program, *arguments, *given], input=text, capture_output=True, text=True, timeout=60, check=False
    )


def rendered_text(values: Object | None = None) -> str:
    """All manifests; the test fails where helm does."""
    return _rendered(json.dumps(values or {}))


@cache
def _rendered(values: str) -> str:
    release = ("kqueue", str(CHART), "--namespace", NAMESPACE, "--kube-version", "1.36")
    done = helm("template", *release, values=json.loads(values))
    assert done.returncode == 0, done.stderr
    return done.stdout


def by_template(text: str) -> dict[str, list[str]]:
    """Template file to the documents that it rendered, in order."""
    found: dict[str, list[str]] = {}
    for document in re.split(r"^---$\n", text, flags=re.MULTILINE):
        if match := _SOURCE.search(document):
            found.setdefault(match[1], []).append(f"---\n{document}")
    return found


def objects(values: Object | None = None) -> list[Object]:
    """All manifests, as objects."""
    return documents(rendered_text(values))


def one(found: list[Object], kind: str, name: str) -> Object:
    """The object of this kind and name."""
    return next(o for o in found if (o["kind"], o["metadata"]["name"]) == (kind, name))


def configuration(found: list[Object]) -> str:
    """The rendered configuration file."""
    return next(
        str(o["data"]["config.yaml"])
        for o in found
        if o["kind"] == "ConfigMap" and o["metadata"]["name"].endswith("-configuration")
    )
