"""The parts of the chart that are written from the table of kinds."""

from __future__ import annotations

import re

import pytest
import yaml

from kqueue import kinds
from kqueue.jobs import catalog
from tests.unit.toys import toy_kind
from tools.chart_kinds import SCHEMA, TEMPLATE, schema, template


def test_the_chart_is_what_the_table_says() -> None:
    """`make reference` writes it."""
    assert TEMPLATE.read_text() == template()
    assert SCHEMA.read_text() == schema(SCHEMA.read_text())


def test_a_new_kind_gets_its_rights_and_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its objects are queued, followed, counted and looked through; users get roles; the chart's values may name it."""
    row = toy_kind.ROW
    monkeypatch.setitem(kinds._frameworks, row.framework, row)
    monkeypatch.setitem(kinds._owners, row.group_kind, row)
    monkeypatch.setitem(catalog._jobs, row.framework, toy_kind.Toy())
    written = template()
    verbs = re.findall(r"apiGroups: \[toys.example.com\]\n  resources: \[(.*)\]\n  verbs: \[(.*)\]", written)

    assert verbs == [
        ("toys", "get"),
        ("toys", "list"),
        ("toys", "get, list, watch, patch{{ if .deletes }}, delete{{ end }}"),
        ("toys/finalizers", "update"),
        ("toys", "list"),
    ]
    assert f'{{{{- if has "{row.framework}" .frameworks }}}}' in written
    assert '"path": "toys.example.com/toys"' in written
    assert f'"{row.framework}"' in schema(SCHEMA.read_text())


def test_the_values_switch_on_all_kinds_that_are_built_in() -> None:
    """In the order of the table."""
    values = yaml.safe_load((SCHEMA.parent / "values.yaml").read_text())

    built_in = [name for name, row in kinds.FRAMEWORKS.items() if row.built_in]
    assert values["configuration"]["integrations"]["frameworks"] == built_in
