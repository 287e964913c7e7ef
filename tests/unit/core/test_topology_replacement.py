"""Replacement of failed hosts: the search inside one domain, what has to come back where, and the merge."""

from __future__ import annotations

from kqueue.core.explain import Blocker, BlockerKind, sentence
from kqueue.core.topology import Exclusions, Misfit, MisfitCode, Shortage
from tests.unit.core.topology_cases import BLOCK, RACK, hosts, make_pod_set, place_one, racks


def test_a_search_within_a_domain_uses_no_other() -> None:
    """A roomier and a tighter rack stand beside the one that must do; a name that begins alike is another domain."""
    capacity = racks({"a1": 4}, {"b1": 2, "b2": 2}, *[{}] * 7, {"j1": 9})

    assert hosts(place_one(capacity, make_pod_set(3, required=BLOCK), within=("b1", "r2"))) == {"b1": 2, "b2": 1}
    assert hosts(place_one(capacity, make_pod_set(4, unconstrained=True), within=("b1", "r1"))) == {"a1": 4}
    assert isinstance(place_one(capacity, make_pod_set(5, required=BLOCK), within=("b1", "r1")), Misfit)


def test_a_search_within_a_domain_tells_what_is_short_there() -> None:
    """Leaves outside count as such, whatever room they have."""
    capacity = racks({"a1": 4, "a2": 1}, {"b1": 9, "b2": 9})

    found = place_one(capacity, make_pod_set(6, cores=2, required=RACK), within=("b1", "r1"))

    assert isinstance(found, Misfit)
    assert found.code is MisfitCode.NO_FIT
    assert (found.fit, found.total, found.leaves) == (2, 6, 4)
    assert found.excluded == Exclusions(topology_domain=2, resources={"cpu": 1})
    assert found.shortage == Shortage("cpu", 12000, 5000)
    text = sentence(Blocker(kind=BlockerKind.TOPOLOGY, flavor="tas", misfit=found))
    assert "2 by lying outside of the domain to repair" in text
