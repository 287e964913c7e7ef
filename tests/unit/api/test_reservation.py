"""The rules of a Reservation that the API server checks, too."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api.reservation import DomainReservation
from kqueue.errors import InvalidObjectError

JSON = dict[str, Any]
DAY, NIGHT, NEXT = "2026-01-01T06:00:00Z", "2026-01-01T18:00:00Z", "2026-01-02T06:00:00Z"


def reservation(**spec: Any) -> JSON:
    """A Reservation of a rack; None: no such field."""
    asked = {"topology": "dc", "domain": ["b0", "r1"], "from": DAY, "to": NIGHT, **spec}
    return {
        "apiVersion": "kqueue.dev/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r"},
        "spec": {key: value for key, value in asked.items() if value is not None},
    }


ACCEPTED = [
    pytest.param(reservation(), id="a domain"),
    pytest.param(reservation(domain=None, level="rack", count=2), id="a level and a count"),
    pytest.param(reservation(drainFrom=DAY), id="drained from its begin on"),
    pytest.param(reservation(clusterQueue="people", resources={"nvidia.com/gpu": 4, "cpu": "500m"}), id="a part"),
    pytest.param(reservation(to="2027-01-02T06:00:00Z"), id="366 days"),
]
REFUSED = [
    pytest.param(reservation(level="rack", count=2), "set either domain, or level and count", id="both"),
    pytest.param(reservation(domain=None), "set either domain, or level and count", id="neither"),
    pytest.param(reservation(domain=None, level="rack"), "set either domain, or level and count", id="no count"),
    pytest.param(reservation(domain=[]), "spec.domain", id="an empty path"),
    pytest.param(reservation(domain=None, level="rack", count=65), "spec.count", id="too many domains"),
    pytest.param(reservation(to=DAY), "to must be after from", id="no time"),
    pytest.param(reservation(**{"from": NEXT}), "to must be after from", id="the end before the begin"),
    pytest.param(reservation(to="2027-01-02T06:00:01Z"), "at most 366 days", id="too long"),
    pytest.param(reservation(drainFrom=NIGHT), "drainFrom must not be after from", id="drained too late"),
    pytest.param(reservation(to="2026-01-01"), "spec.to", id="no time of day"),
    pytest.param(reservation(resources={"cpu": "many"}), "cpu", id="no quantity"),
    pytest.param(reservation(ttlSecondsAfterEnded=-1), "ttlSecondsAfterEnded", id="a negative time to live"),
]


@pytest.mark.parametrize("obj", ACCEPTED)
def test_a_valid_reservation_is_read(obj: JSON) -> None:
    found = DomainReservation.read(obj)
    assert found.to_json()["spec"]["from"].startswith("2026-01-01T06:00:00")


@pytest.mark.parametrize(("obj", "fact"), REFUSED)
def test_a_mistake_is_named(obj: JSON, fact: str) -> None:
    with pytest.raises(InvalidObjectError) as caught:
        DomainReservation.read(obj)
    assert fact in str(caught.value)
