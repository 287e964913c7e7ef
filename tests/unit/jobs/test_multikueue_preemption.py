"""Copies on several clusters: one cluster after the other may preempt for them.

Ids such as `17.2` are items of the specification of the workload life cycle.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.config.dispatchers import DISPATCHER_INCREMENTAL
from kqueue.jobs.multikueue.decision import RemoteStep, decide
from kqueue.jobs.multikueue.facts import DispatchPolicy, MultiKueueFacts, Remote
from kqueue.jobs.multikueue.preemption import gated
from tests.unit.controllers.builders import make_workload, read
from tests.unit.jobs.test_multikueue import at, facts, lost, remote

GATE = "kueue.x-k8s.io/multikueue"
ORCHESTRATED = DispatchPolicy(orchestrates_preemption=True)
OPEN = RemoteStep.OPEN_GATE
PERIOD = timedelta(minutes=5)


def copy(cluster: str, blocked: int | None = None, opened: str = "", *, gate: str = GATE, **more: Any) -> Remote:
    """A copy with a gate that would preempt since a minute of the day before; `opened`: when its gate was opened."""
    conditions = [at(blocked, "BlockedOnPreemptionGates")] if blocked is not None else []
    state = [{"name": gate, "position": "Open", "lastTransitionTime": opened}] if opened else []
    status = {"conditions": conditions, "preemptionGates": state}
    made = read(wire.Workload, make_workload(status=status, preemptionGates=[{"name": gate}]))
    return Remote(cluster=cluster, workload=made, **more)


def asked(
    *remotes: Remote, nominated: str = "abc", policy: DispatchPolicy = ORCHESTRATED, **more: Any
) -> MultiKueueFacts:
    return facts(*remotes, nominated=nominated, policy=policy, **more)


@pytest.mark.parametrize(
    ("found", "want", "again"),
    [
        pytest.param(asked(copy("a"), copy("b")), {}, None, id="none would preempt"),
        pytest.param(asked(copy("a"), copy("b", 7)), {"b": OPEN}, PERIOD, id="the one that would"),
        pytest.param(asked(copy("a", 9), copy("b", 7)), {"b": OPEN}, PERIOD, id="the longest waiting"),
        pytest.param(asked(copy("b", 7), copy("a", 7)), {"a": OPEN}, PERIOD, id="of equal ones the first by name"),
        pytest.param(asked(copy("a", 9), copy("b", opened="2025-12-31T23:56:00Z")), {}, PERIOD - timedelta(minutes=4), id="one per period"),
        pytest.param(asked(copy("a", 9), copy("b", 7, "2025-12-31T23:55:00Z")), {"a": OPEN}, PERIOD, id="the next period"),
        pytest.param(asked(copy("a", 9), copy("b", opened="2025-12-31T23:30:00Z"), copy("c", opened="2025-12-31T23:56:00Z")), {}, timedelta(minutes=1), id="the last opening counts"),
        pytest.param(asked(copy("a", opened="2025-12-31T23:59:00Z"), copy("b")), {}, None, id="nobody waits for the period"),
        pytest.param(asked(copy("a", 9, is_leaving=True)), {"a": RemoteStep.DELETE}, None, id="a copy that leaves"),
        pytest.param(asked(lost("a", 1), copy("b", 7)), {"b": OPEN}, PERIOD, id="a lost cluster holds nobody back"),
        pytest.param(asked(copy("a", 9, gate="team/own")), {}, None, id="no gate of ours: an older copy"),
        pytest.param(asked(copy("a", 9), copy("b", opened="2025-12-31T23:56:00Z", gate="team/own")), {"a": OPEN}, PERIOD, id="another gate begins no period"),
        pytest.param(asked(copy("a", 9), copy("b", opened="2026-01-01T00:01:00Z")), {}, PERIOD, id="clocks differ"),
        pytest.param(asked(copy("a", 9), copy("b", opened="2099-01-01T00:00:00Z")), {"a": OPEN}, PERIOD, id="a worker that lies about times"),
        pytest.param(asked(copy("a", 9), remote("b", at(5, "Admitted"), job=True)), {"a": RemoteStep.DELETE}, None, id="a winner ends it"),
        pytest.param(asked(copy("a", 9), others={"x": "Pending"}), {}, None, id="not before the other checks"),
        pytest.param(asked(copy("a", 9), policy=DispatchPolicy()), {"a": OPEN}, None, id="switched off again"),
        pytest.param(asked(copy("a"), copy("b"), policy=DispatchPolicy()), {"a": OPEN, "b": OPEN}, None, id="all of an earlier configuration"),
    ],
)  # fmt: skip
def test_one_cluster_after_the_other_may_preempt(
    found: MultiKueueFacts, want: dict[str, RemoteStep], again: timedelta | None
) -> None:
    """17.2: the one that has been blocked longest, and one per period."""
    decision = decide(found)
    gates = {cluster: step for cluster, step in decision.steps.items() if step is not RemoteStep.CREATE}
    assert gates == want
    if OPEN in want.values() or not want:
        assert decision.again == again


def test_the_earlier_time_to_look_again_counts() -> None:
    """Rounds of the incremental dispatcher go on while a gate is open."""
    policy = DispatchPolicy(dispatcher=DISPATCHER_INCREMENTAL, step=1, orchestrates_preemption=True)
    found = asked(copy("a", 7), copy("b"), nominated="a", policy=policy, since="2025-12-31T23:58:00Z")
    assert decide(found).again == timedelta(minutes=3)


def test_a_copy_is_created_with_a_closed_gate_of_ours_alone() -> None:
    """The original's gates are of the manager's own cluster, and hold nothing back elsewhere."""
    original = {"metadata": {"name": "w"}, "spec": {"queueName": "q"}}
    assert gated(original) == {
        "metadata": {"name": "w"},
        "spec": {"queueName": "q", "preemptionGates": [{"name": GATE}]},
    }
    assert "preemptionGates" not in original["spec"]
