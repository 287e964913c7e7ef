"""Rules that map pods to LocalQueues."""

from __future__ import annotations

from pathlib import Path

import pytest

from kqueue.errors import ConfigError
from kqueue.operations.importing.mapping import MappingRule, rule_for, rules_in, rules_of_label

RULES = """
- match: {labels: {app: train, size: big}}
  toLocalQueue: big
- match: {priorityClassName: low}
  skip: true
- toLocalQueue: rest
"""


@pytest.mark.parametrize(
    ("labels", "priority_class", "queue"),
    [
        pytest.param(
            {"app": "train", "size": "big", "x": "y"}, "low", "big", id="all-labels-match-the-first-rule-wins"
        ),
        pytest.param({"app": "train"}, "low", None, id="a-label-is-missing-and-the-class-is-skipped"),
        pytest.param({"app": "train"}, "", "rest", id="a-rule-without-match-takes-all"),
    ],
)
def test_the_first_rule_that_matches_counts(
    labels: dict[str, str], priority_class: str, queue: str | None, tmp_path: Path
) -> None:
    """All of its labels and its class must be the pod's; None: it is skipped."""
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    rule = rule_for({"metadata": {"labels": labels}, "spec": {"priorityClassName": priority_class}}, rules_in(path))
    assert rule is not None
    assert (rule.queue or None, rule.skip) == (queue, queue is None)


def test_a_label_may_name_the_queue() -> None:
    """One rule for each value; a pod with another value, or without the label, has none."""
    rules = rules_of_label("app", {"train": "main", "notebook": "small"})
    assert rules == [
        MappingRule(labels={"app": "train"}, queue="main"),
        MappingRule(labels={"app": "notebook"}, queue="small"),
    ]
    assert rule_for({"metadata": {"labels": {"app": "x"}}}, rules) is None
    assert rule_for({"metadata": {}}, rules) is None


@pytest.mark.parametrize(
    ("text", "match"),
    [
        pytest.param("", "must be a list of rules", id="empty"),
        pytest.param("a: b", "must be a list of rules", id="no-list"),
        pytest.param("- a: [", "rules.yaml", id="no-yaml"),
        pytest.param("- x", "rule 1: must be a mapping", id="no-mapping"),
        pytest.param("- toLocalQueue: a\n- to: b", "rule 2: unknown field to; known are match", id="unknown-field"),
        pytest.param("- match: {label: {}}\n  skip: true", "rule 1: match: unknown field label", id="unknown-match"),
        pytest.param("- match: {}", "either toLocalQueue", id="nowhere"),
        pytest.param("- {toLocalQueue: a, skip: true}", "either toLocalQueue", id="both"),
        pytest.param("- {toLocalQueue: 1}", "must be text", id="queue-is-a-number"),
        pytest.param("- {skip: 'yes'}", "either toLocalQueue", id="skip-is-text"),
        pytest.param(
            "- {toLocalQueue: a, match: {labels: {a: true}}}", "put values such as true", id="label-is-a-boolean"
        ),
    ],
)
def test_a_wrong_file_is_named(text: str, match: str, tmp_path: Path) -> None:
    """With the number of the rule."""
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=match):
        rules_in(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """By its path."""
    with pytest.raises(ConfigError, match=r"--queuemapping-file .*none\.yaml"):
        rules_in(tmp_path / "none.yaml")
