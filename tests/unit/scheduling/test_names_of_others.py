"""What a Workload and its events say never names a workload of another namespace."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from kqueue.core.decision import Outcome, Preempt, Wait
from kqueue.core.explain import Blocker, BlockerKind, WaitReason, sentence
from kqueue.core.mention import Mention, mentioned, readers_of
from kqueue.core.preemption import PreemptionReason, Target
from kqueue.core.workload import Claim, Head
from tests.builders import START
from tests.unit.controllers.builders import make_cluster_queue, make_local_queue, make_workload, message_of
from tests.unit.core.preemption_cases import runs
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.scheduling.test_preemption import LOWER, running

SECRET = Mention("secret/merger", "finance")
OWN = Mention("ns/mine", "team")
HEAD = Head(key="ns/a", uid="a", queue="team", priority=0, timestamp=START, pod_sets=())


@pytest.mark.parametrize("kind", list(BlockerKind))
def test_no_blocker_names_a_workload_of_another_namespace(kind: BlockerKind) -> None:
    """Of its own namespace those are named of which the sentence speaks."""
    blocker = Blocker(kind=kind, workloads=(SECRET, OWN), detail="what is written")
    wait = Wait(head=HEAD, outcome=Outcome.NO_FIT, reason=WaitReason.WAITING_FOR_QUOTA, blockers=(blocker,))
    assert "merger" not in wait.message
    assert "secret" not in wait.message
    assert ("ns/mine" in wait.message) == ("ns/mine" in sentence(blocker, lambda _: True))
    assert "merger" not in sentence(blocker)


@pytest.mark.parametrize(
    ("workloads", "expected"),
    [
        pytest.param([OWN], "ns/mine", id="one of the same namespace"),
        pytest.param([SECRET], "a workload of ClusterQueue finance", id="one of another namespace"),
        pytest.param([Mention("secret/x")], "a workload of another namespace", id="one whose queue is not known"),
        pytest.param(
            [SECRET, Mention("other/b", "finance"), Mention("other/c", "team"), OWN],
            "ns/mine and 2 workloads of ClusterQueue finance and a workload of ClusterQueue team",
            id="some of each",
        ),
        pytest.param(
            [Mention(f"ns/w{i}") for i in range(7)], "ns/w0, ns/w1, ns/w2, ns/w3, ns/w4 and 2 more", id="many"
        ),
        pytest.param([], "", id="none"),
    ],
)
def test_workloads_of_other_namespaces_are_counted_by_queue(workloads: Sequence[Mention], expected: str) -> None:
    """Those of the reader's namespace are named, five at most."""
    assert mentioned(workloads, readers_of("ns/a")) == expected


def test_a_preemptor_counts_its_victims_of_other_namespaces() -> None:
    """`runs` makes workloads of namespace `default`."""
    targets = tuple(Target(runs(f"v{i}", "finance", 1), PreemptionReason.IN_COHORT_RECLAMATION) for i in range(3))
    decision = Preempt(head=HEAD, targets=targets, claim=Claim(key="ns/a", uid="a", queue="team", usage={}, victims={}))
    assert decision.message == "Preempting 3 workloads to make room: 3 workloads of ClusterQueue finance"


async def test_neither_side_of_a_preemption_names_the_other_one(make: Callable[..., Scheduled]) -> None:
    """The victim keeps UID and paths, by which programs find the preemptor."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(preemption=LOWER)))
    world.namespaces["secret"] = {}
    world.client.put(LOCAL_QUEUES, {**make_local_queue(), "metadata": {"name": "main", "namespace": "secret"}})
    world.add(running("mine", cpus=10))
    world.add(make_workload("merger", cpus=10, priority=1, metadata={"namespace": "secret"}))
    await world.cycle()
    world.sync()

    told = message_of(world.workload("mine"), "Preempted")
    assert "secret/" not in told
    assert told.startswith("Makes room for a workload of ClusterQueue team (UID uid-of-merger, job UID ")
    preemptor = world.client.object(WORKLOADS, "secret/merger")
    said = message_of(preemptor, "QuotaReserved")
    assert said == "Preempting 1 workload to make room: a workload of ClusterQueue team"
