"""Sums of what is held, kept as workloads come, are admitted and go, and made anew where they are wrong."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kqueue.core.quota import FlavorResource
from kqueue.core.workload import Admission, PodSetAssignment
from kqueue.state.cache import Cache
from kqueue.state.held import HeldSums, HoldingShare, QueueHoldings
from kqueue.state.holding import Holding

CPU = FlavorResource("f", "cpu")


def share(*, queue: str = "team", local: str = "ns/main", admitted: bool = False, cpus: int = 1) -> HoldingShare:
    return HoldingShare(queue, local, admitted, {CPU: cpus})


SHARES = st.lists(
    st.builds(
        share, queue=st.sampled_from("ab"), local=st.sampled_from("xy"), admitted=st.booleans(), cpus=st.integers(0, 3)
    ),
    max_size=12,
)


def test_admitted_ones_are_counted_twice_over() -> None:
    """Among those with a reservation, and by themselves; by ClusterQueue and by LocalQueue."""
    sums = HeldSums([share(cpus=2), share(cpus=5, admitted=True), share(local="ns/other")])

    assert sums.of_queue("team") == QueueHoldings(reserving=3, admitted=1, reserved={CPU: 8}, used={CPU: 5})
    assert sums.of_local_queue("ns/main", "team") == QueueHoldings(
        reserving=2, admitted=1, reserved={CPU: 7}, used={CPU: 5}
    )
    assert sums.of_local_queue("ns/main", "another") == QueueHoldings()


@given(SHARES, SHARES)
def test_who_goes_leaves_nothing(stay: list[HoldingShare], go: list[HoldingShare]) -> None:
    """The sums are those of who stays, whoever was there."""
    sums = HeldSums([*go, *stay])
    for each in go:
        sums.add(each, sign=-1)

    assert sums.is_same_as(HeldSums(stay))


@given(SHARES)
def test_alike_ones_may_be_added_together(shares: list[HoldingShare]) -> None:
    """As an audit counts them."""
    together = [
        HoldingShare(s.queue, s.local_queue, s.admitted, {CPU: s.usage[CPU] * n}, workloads=n)
        for n, s in enumerate(shares, start=1)
    ]

    assert HeldSums(together).is_same_as(HeldSums(s for n, s in enumerate(shares, start=1) for _ in range(n)))


def test_an_audit_finds_and_heals_wrong_sums() -> None:
    """Told once, and right from then on."""
    cache = Cache()
    pod_set = PodSetAssignment(name="main", count=1, flavors={"cpu": "f"}, usage={"cpu": 4})
    holding = Holding(
        key="ns/w",
        uid="w",
        local_queue="ns/main",
        admission=Admission(queue="team", pod_sets=(pod_set,)),
        requests={},
        admitted=False,
        assumed=True,
    )
    with cache.held.assumed(holding):
        pass
    assert cache.audits.audit() == []
    cache.held.held_in("team").reserved[CPU] = 5

    assert [drift.cause for drift in cache.audits.audit()] == ["quota"]

    assert (
        cache.held.held_in("team")
        == cache.held.held_through("ns/main", "team")
        == QueueHoldings(reserving=1, reserved={CPU: 4})
    )
    assert cache.audits.audit() == []
