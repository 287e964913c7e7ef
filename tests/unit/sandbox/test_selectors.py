from __future__ import annotations

from typing import Any

import pytest

from kqueue.errors import InvalidError
from kqueue.sandbox import expression, quantity, selectors
from kqueue.sandbox.api import PODS, Object
from tests.unit.sandbox.objects import new_api

LABELS = {"app": "web", "tier": "2", "example.com/x": "y"}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        pytest.param("", True, id="nothing-asked"),
        pytest.param("app=web", True, id="equal"),
        pytest.param("app==web,tier=2", True, id="both"),
        pytest.param("app=db", False, id="not-equal"),
        pytest.param("app!=db", True, id="different"),
        pytest.param("other!=db", True, id="different-because-absent"),
        pytest.param("app in (db, web)", True, id="one-of"),
        pytest.param("app notin (db,web)", False, id="none-of"),
        pytest.param("example.com/x", True, id="present"),
        pytest.param("!other", True, id="absent"),
        pytest.param("!app", False, id="not-absent"),
        pytest.param("tier>1", True, id="greater"),
        pytest.param("tier<2", False, id="not-less"),
        pytest.param("app in (web),!other,tier notin (1,3)", True, id="commas-inside-and-outside"),
    ],
)
def test_label_selectors_in_text(text: str, selected: bool) -> None:
    """All forms that kubectl -l takes."""
    assert selectors.parse_labels(text).selects(LABELS) is selected


@pytest.mark.parametrize("text", ["a b c", "a in b", "a=b=c", "=x", "a=!", ",", "a b=c"])
def test_a_text_that_is_no_selector_is_400(text: str) -> None:
    """The part that is not understood is quoted."""
    with pytest.raises(InvalidError, match="unable to parse requirement") as caught:
        selectors.parse_labels(text)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        pytest.param({}, True, id="empty"),
        pytest.param({"matchLabels": {"app": "web"}}, True, id="labels"),
        pytest.param(
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False, id="not-in"
        ),
        pytest.param({"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}, True, id="does-not-exist"),
        pytest.param(
            {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["3"]}]},
            False,
            id="labels-and-expressions",
        ),
    ],
)
def test_label_selectors_in_objects(selector: Object, selected: bool) -> None:
    """The form of specs."""
    assert selectors.from_object(selector).selects(LABELS) is selected


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        pytest.param("spec.nodeName=n", True, id="equal"),
        pytest.param("spec.nodeName!=n", False, id="different"),
        pytest.param("spec.nodeName=,metadata.name=p", False, id="empty"),
        pytest.param("status.phase!=Succeeded,status.phase!=Failed", True, id="several"),
        pytest.param("metadata.namespace=default", True, id="namespace"),
        pytest.param("spec.hostNetwork=false", True, id="an-absent-boolean-is-false"),
    ],
)
def test_field_selectors(text: str, selected: bool) -> None:
    """Those that pods can be selected by."""
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
    test = selectors.parse_fields(text, new_api().kind(PODS))
    assert test is not None
    assert test(pod) is selected


@pytest.mark.parametrize("text", ["spec.priority=1", "nonsense", "a=b=c,d"])
def test_a_field_that_cannot_be_selected_by_is_400(text: str) -> None:
    """Not silently everything."""
    with pytest.raises(InvalidError) as caught:
        selectors.parse_fields(text, new_api().kind(PODS))
    assert caught.value.status == 400


SCOPE: dict[str, Any] = {
    "object": {"metadata": {"labels": {"a/b": "c"}, "name": "n"}, "spec": {"suspend": True, "n": 3}},
    "oldObject": None,
    "request": {"userInfo": {"username": "system:serviceaccount:x:y"}, "operation": "CREATE"},
}


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        pytest.param("object.spec.suspend == true", True, id="equal"),
        pytest.param("object.spec.n != 3", False, id="not-equal"),
        pytest.param("object.spec.n > 2", True, id="greater"),
        pytest.param("has(object.metadata.labels) && 'a/b' in object.metadata.labels", True, id="has-and-in"),
        pytest.param("has(object.spec.nope) || object.metadata.name == 'n'", True, id="or"),
        pytest.param("!has(object.spec.nope)", True, id="not"),
        pytest.param("object.metadata.labels['a/b'] == \"c\"", True, id="an-index"),
        pytest.param("request.operation in ['CREATE', 'UPDATE']", True, id="a-list"),
        pytest.param("oldObject == null", True, id="null"),
        pytest.param("request.userInfo.username.startsWith('system:')", True, id="a-method"),
        pytest.param("!(object.spec.n == 3 || object.spec.nope == 1)", False, id="one-true-part-decides"),
        pytest.param("object.spec.nope == 1 && object.spec.n == 4", False, id="one-false-part-decides"),
    ],
)
def test_match_conditions(text: str, outcome: bool) -> None:
    """The part of CEL that webhooks use."""
    assert expression.compiled(text)(SCOPE) is outcome


@pytest.mark.parametrize(
    "text",
    [
        "object.spec.replicas + 1 == 3",
        "object.items.all(i, i.ok)",
        "size(object.metadata.labels) == 1",
        "variables.x == 1",
        "object.spec.",
        "",
        "(" * 100 + "true" + ")" * 100,
        "!" * 1000 + "true",
        "object ==",
        "has(object.a",
        "'open",
    ],
)
def test_an_expression_beyond_that_is_refused_when_it_is_read(text: str) -> None:
    """Never understood as something else."""
    with pytest.raises(expression.ExpressionError):
        expression.compiled(text)


@pytest.mark.parametrize("text", ["object.spec.nope == 1", "object.metadata.name", "'x' in object.metadata.name"])
def test_an_expression_that_cannot_be_evaluated_says_so(text: str) -> None:
    """A missing field is not false."""
    condition = expression.compiled(text)
    with pytest.raises(expression.ExpressionError):
        condition(SCOPE)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        pytest.param("1024Mi", "1Gi", id="binary"),
        pytest.param("1536Mi", "1536Mi", id="binary-that-does-not-fit"),
        pytest.param("2000m", "2", id="milli"),
        pytest.param("0.5", "500m", id="a-fraction"),
        pytest.param("1500", "1500", id="no-suffix"),
        pytest.param("2000k", "2M", id="decimal"),
        pytest.param("1e3", "1e3", id="exponent"),
        pytest.param("0Gi", "0", id="zero"),
        pytest.param("-1", "-1", id="negative"),
        pytest.param("100", "100", id="hundred"),
        pytest.param("0.5Gi", "512Mi", id="half-a-gibibyte"),
    ],
)
def test_quantities_are_written_as_the_real_server_does(text: str, written: str) -> None:
    """The largest suffix of the same family that leaves no fraction."""
    assert quantity.canonical(text) == written


@pytest.mark.parametrize("text", ["", "x", "1x", "1 Gi", "--1", ".", "1e", "9" * 100, "1e99999"])
def test_a_text_that_is_no_quantity_is_refused(text: str) -> None:
    """With the rule that it breaks."""
    with pytest.raises(ValueError, match="quantities must match"):
        quantity.canonical(text)
