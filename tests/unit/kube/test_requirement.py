"""Requirements on labels: operators, missing labels, and both parts of a label selector."""

from __future__ import annotations

import pytest

from kqueue.kube.requirement import Requirement, holds, labels_match


@pytest.mark.parametrize(
    ("operator", "values", "value", "expected"),
    [
        ("In", ("a", "b"), "b", True), ("In", ("a",), "b", False), ("In", ("a",), None, False), ("In", (), "a", False),
        ("NotIn", ("a",), "b", True), ("NotIn", ("a",), "a", False), ("NotIn", ("a",), None, True),
        ("Exists", (), "", True), ("Exists", (), None, False), ("DoesNotExist", (), None, True), ("DoesNotExist", (), "", False),
        ("Gt", ("5",), "6", True), ("Gt", ("5",), "5", False), ("Lt", ("5",), "4", True), ("Lt", ("5",), "-7", True),
        ("Gt", ("5",), None, False), ("Gt", ("5", "6"), "9", False), ("Gt", (), "9", False), ("Gt", ("x",), "9", False),
        ("Gt", ("5",), "9.5", False), ("Gt", ("5",), " 9", False), ("Gt", ("5",), "9_0", False), ("Sometimes", ("a",), "a", False),
        ("", ("a",), "a", False),
    ],
)  # fmt: skip
def test_an_operator_compares_a_label_with_values(
    operator: str, values: tuple[str, ...], value: str | None, expected: bool
) -> None:
    """A missing label meets NotIn and DoesNotExist only."""
    assert holds(operator, values, value) is expected


@pytest.mark.parametrize(
    ("match_labels", "requirements", "expected"),
    [
        pytest.param({}, (), True, id="empty"),
        pytest.param({"app": "web"}, (), True, id="labels"),
        pytest.param({"app": "db"}, (), False, id="other-value"),
        pytest.param({"tier": ""}, (), False, id="a-missing-label-is-not-an-empty-one"),
        pytest.param({"app": "web"}, (Requirement("app", "NotIn", ("web",)),), False, id="both-parts-must-hold"),
        pytest.param({}, (Requirement("size", "Gt", ("1",)),), False, id="label-selectors-do-not-compare"),
    ],
)
def test_a_label_selector_has_two_parts(
    match_labels: dict[str, str], requirements: tuple[Requirement, ...], expected: bool
) -> None:
    """Exact labels and requirements."""
    assert labels_match(match_labels, requirements, {"app": "web", "size": "3"}) is expected
