"""What a pod costs in quota, where that is not what it requests."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest

from kqueue.core.quantity import INT64_MAX
from kqueue.core.quota_requests import Counting, Transformation

GI = 1 << 30
SLICE = "example.com/slice"
MEMORY = "example.com/mem"
CREDIT = "example.com/credit"


def rule(
    input_: str = SLICE, *, keeps: bool = False, by: str = "", **outputs: Fraction | int | str
) -> dict[str, Transformation]:
    """One transformation; outputs by the last part of their name."""
    named = {f"example.com/{name}" if name != "cpu" else name: Fraction(amount) for name, amount in outputs.items()}
    return {input_: Transformation(input=input_, outputs=named, keeps_input=keeps, multiply_by=by)}


@pytest.mark.parametrize(
    ("counting", "requests", "want"),
    [
        pytest.param(Counting(), {"cpu": 1000}, {"cpu": 1000}, id="without-rules-requests-count-as-they-are"),
        pytest.param(
            Counting(excluded_prefixes=("example.com/", "net")),
            {"cpu": 1000, SLICE: 2, "net": 1, "other.com/net": 3},
            {"cpu": 1000, "other.com/net": 3},
            id="what-begins-with-an-excluded-prefix-costs-nothing",
        ),
        pytest.param(
            Counting(transformations=rule(mem=5 * GI, credit=10)),
            {SLICE: 2, "cpu": 1000},
            {"cpu": 1000, MEMORY: 10 * GI, CREDIT: 20},
            id="a-replaced-input-is-counted-as-its-outputs",
        ),
        pytest.param(
            Counting(transformations=rule(keeps=True, credit=10)),
            {SLICE: 2},
            {SLICE: 2, CREDIT: 20},
            id="a-retained-input-is-counted-too",
        ),
        pytest.param(
            Counting(transformations=rule(credit=10)), {"cpu": 1}, {"cpu": 1}, id="pods-without-the-input-are-not-changed"
        ),
        pytest.param(
            Counting(transformations=rule(by="cpu", credit=2)),
            {SLICE: 3, "cpu": 1500},
            {"cpu": 1500, CREDIT: 9},
            id="the-input-is-multiplied-by-cores-not-by-thousandths",
        ),
        pytest.param(
            Counting(transformations=rule(by="cpu", credit=2)),
            {SLICE: 3},
            {CREDIT: 6},
            id="nothing-multiplies-where-the-pod-has-none-of-it",
        ),
        pytest.param(
            Counting(excluded_prefixes=("cpu",), transformations=rule(by="cpu", credit=2)),
            {SLICE: 3, "cpu": 1500},
            {CREDIT: 6},
            id="what-is-excluded-multiplies-nothing",
        ),
        pytest.param(
            Counting(transformations=rule("cpu", keeps=True, credit=Fraction(1, 3))),
            {"cpu": 1001},
            {"cpu": 1001, CREDIT: 1},
            id="parts-are-rounded-up-once-at-the-end",
        ),
        pytest.param(
            Counting(transformations=rule("a", credit=Fraction(1, 2)) | rule("b", credit=Fraction(1, 2))),
            {"a": 1, "b": 1},
            {CREDIT: 1},
            id="contributions-of-several-inputs-are-summed-before-they-are-rounded",
        ),
        pytest.param(
            Counting(transformations=rule("a", credit=2)),
            {"a": 1, CREDIT: 5},
            {CREDIT: 7},
            id="what-is-generated-adds-to-what-is-requested",
        ),
        pytest.param(
            Counting(transformations=rule("a", credit=-2) | rule("b", credit=1)),
            {"a": 1, "b": 1, CREDIT: 5},
            {CREDIT: 5},
            id="a-negative-sum-takes-nothing-off-what-is-requested",
        ),
        pytest.param(
            Counting(transformations=rule("a", credit=1) | rule(CREDIT, mem=1)),
            {"a": 1},
            {CREDIT: 1},
            id="what-is-generated-is-not-transformed-again",
        ),
        pytest.param(
            Counting(transformations=rule("a", cpu=Fraction(1, 2))),
            {"a": 3},
            {"cpu": 1500},
            id="cores-that-are-generated-are-counted-in-thousandths",
        ),
        pytest.param(
            Counting(transformations=rule("a", credit=10**30)),
            {"a": 3},
            {CREDIT: INT64_MAX},
            id="sums-stop-at-the-largest-number",
        ),
    ],
)  # fmt: skip
def test_requests_are_counted_by_the_rules(
    counting: Counting, requests: Mapping[str, int], want: Mapping[str, int]
) -> None:
    """Exclusion first, then transformations; exact, and rounded up at the end."""
    before = dict(requests)
    assert counting.counted(requests) == want
    assert requests == before
