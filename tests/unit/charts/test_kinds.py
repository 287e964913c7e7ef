"""The parts of the chart that are written from the table of kinds."""

from __future__ import annotations

import re

import pytest
import yaml

from kqueue import kinds
from kqueue.jobs import catalog
from kqueue.jobs.gang.batch_process import FRAMEWORK as BATCH_PROCESSES
from kqueue.jobs.gang.registry import dialect_of
from tests.unit.toys import toy_kind
from tools.chart_kinds import SCHEMA, TEMPLATE, group_objects, schema, template


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


def test_pods_are_created_for_batch_processes_alone() -> None:
    """G2.18: where the dialect is on, pods and Services; the object is deleted some time after its end."""
    lines = [line for line in group_objects(dialect_of(BATCH_PROCESSES)) if not line.startswith("{{")]
    rules = [(rule["resources"], rule["verbs"]) for rule in yaml.safe_load("\n".join(lines))]

    assert (["pods"], ["create"]) in rules
    assert (["services"], ["get", "create"]) in rules
    assert (["batchprocesses/status"], ["patch"]) in rules
    for name in {name for name in kinds.GANG_DIALECTS if dialect_of(name).kinds} - {BATCH_PROCESSES}:
        assert not any("create" in line for line in group_objects(dialect_of(name)))


def test_the_values_switch_on_all_kinds_that_are_built_in() -> None:
    """In the order of the table, without those that need a feature gate."""
    values = yaml.safe_load((SCHEMA.parent / "values.yaml").read_text())

    built_in = [name for name, row in kinds.FRAMEWORKS.items() if not row.gate]
    assert values["configuration"]["integrations"]["frameworks"] == built_in
