"""Annotations about quotas from capacity: all or nothing, with a sentence that says what to write."""

from __future__ import annotations

import pytest

from kqueue.core.quota import FlavorResource, Quota
from kqueue.model.quota_shares import quota_shares, resolved_quota, resolved_text, with_shares

SHARES, RESOLVED = "kqueue.dev/quota-from-capacity", "kqueue.dev/resolved-quota"
GPU, CPU = FlavorResource("h100", "nvidia.com/gpu"), FlavorResource("h100", "cpu")


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("h100/nvidia.com/gpu=500", {GPU: 500}),
        (" h100/nvidia.com/gpu = 0 ,h100/cpu=50% ", {GPU: 0, CPU: 500}),
        ("h100/cpu=100%", {CPU: 1000}),
    ],
)
def test_shares_are_read(text: str, shares: dict[FlavorResource, int]) -> None:
    assert quota_shares({SHARES: text}) == (shares, "")
    assert quota_shares({}) == ({}, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is no share"),
        ("h100=5", "'h100=5' is no share"),
        ("h100/cpu", "'h100/cpu' is no share"),
        ("h100/cpu=1001", "'h100/cpu=1001' is no share from 0 to 1000 per mille; write FLAVOR/RESOURCE=SHARE such as"),
        ("h100/cpu=101%", "'h100/cpu=101%' is no share"),
        ("h100/cpu=-1", "'h100/cpu=-1' is no share"),
        ("h100/cpu=0.5", "'h100/cpu=0.5' is no share"),
        ("h100/cpu=" + "9" * 10_000, "'h100/cpu=" + "9" * 71 + "' is no share"),
        ("h100/cpu=1,", "'' is no share"),
        ("h100/cpu=1,h100/cpu=2", "h100/cpu has two shares; keep one of them"),
        (",".join(f"f{n}/cpu=1" for n in range(257)), "has more than 256 shares"),
    ],
)
def test_a_wrong_annotation_has_no_share_at_all(text: str, said: str) -> None:
    shares, problem = quota_shares({SHARES: text})
    assert shares == {}
    assert problem.startswith(said)


def test_resolved_amounts_are_read_back() -> None:
    amounts = {GPU: 512, CPU: 1500}
    text = resolved_text(amounts)
    assert text == "h100/cpu=1500m, h100/nvidia.com/gpu=512"
    assert resolved_quota({RESOLVED: text}) == amounts
    assert resolved_quota({RESOLVED: "h100/cpu=x, =, h100/cpu=-1, h100/nvidia.com/gpu=2"}) == {GPU: 2}


@pytest.mark.parametrize(
    ("shares", "resolved", "nominal", "lending"),
    [
        pytest.param("h100/cpu=500", "", 8000, 6000, id="not-resolved-yet"),
        pytest.param("h100/cpu=500", "h100/cpu=4", 4000, 4000, id="no-more-is-lent-than-there-is"),
        pytest.param("h100/cpu=500", "h100/cpu=7", 7000, 6000, id="resolved"),
        pytest.param("", "h100/cpu=4", 8000, 6000, id="a-resolved-quota-without-a-share"),
    ],
)
def test_the_resolved_quota_takes_the_place_of_that_of_the_spec(
    shares: str, resolved: str, nominal: int, lending: int
) -> None:
    notes = {key: text for key, text in ((SHARES, shares), (RESOLVED, resolved)) if text}
    quotas, problem = with_shares({CPU: Quota(8000, 5000, 6000)}, notes)
    assert (quotas, problem) == ({CPU: Quota(nominal, 5000, lending)}, "")


def test_a_share_needs_a_quota_in_the_spec() -> None:
    quotas, problem = with_shares({CPU: Quota(8000)}, {SHARES: "h100/nvidia.com/gpu=1", RESOLVED: "h100/cpu=1"})
    assert quotas == {CPU: Quota(8000)}
    assert problem == "h100/nvidia.com/gpu is not in spec.resourceGroups; add it there, or remove its share"
