"""The parts of the chart that are written from the table of kinds."""

from __future__ import annotations

import pytest

from kqueue import kinds
from tests.unit.toys import toy_kind
from tools.chart_kinds import SCHEMA, TEMPLATE, schema, template


def test_the_chart_is_what_the_table_says() -> None:
    """`make reference` writes it."""
    assert TEMPLATE.read_text() == template()
    assert SCHEMA.read_text() == schema(SCHEMA.read_text())


def test_a_new_kind_gets_its_rights_and_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owners are followed, its objects are counted, and the chart's values may name it."""
    row = toy_kind.ROW
    monkeypatch.setitem(kinds._frameworks, row.framework, row)
    monkeypatch.setitem(kinds._owners, row.group_kind, row)
    written = template()
    assert written.count("- apiGroups: [toys.example.com]\n  resources: [toys]\n") == 2
    assert f'"{row.framework}"' in schema(SCHEMA.read_text())
