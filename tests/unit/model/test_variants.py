"""Which Workload is a variant of which parent: whoever may create Workloads can write any owner and annotation."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.kube.owned_names import SHORT_NAME
from kqueue.model.variants import (
    VariantPolicy,
    allowed_flavor,
    by_flavor,
    parent_key,
    variant_fault,
    variant_name,
    variant_policy,
    waits_for_label,
)
from tests.unit.controllers.builders import make_cluster_queue, read
from tests.unit.state.families import (
    FLAVORS,
    PARENT,
    POLICY,
    UID,
    admitted,
    condition,
    parent_json,
    variant_json,
    workload,
)

JSON = dict[str, Any]


def test_the_name_of_a_variant_is_that_of_other_tools() -> None:
    """Life-cycle 6.1: the worked example, and the limit of short names."""
    assert variant_name(PARENT, UID, "spot") == "job-sample-variant-spot-7d083"
    assert len(variant_name("job-" + "a" * 200 + "-5b05d", UID, "spot", limit=SHORT_NAME)) == SHORT_NAME


def with_owner(**owner: Any) -> JSON:
    """The variant for `spot` with another controller."""
    made = variant_json("spot")
    made["metadata"]["ownerReferences"][0].update(owner)
    return made


def test_a_variant_is_one_of_its_parent() -> None:
    """Name, owner, pod sets, queue and gate match."""
    made = workload(variant_json("spot"))

    assert variant_fault(made, workload(parent_json())) == ""
    assert (parent_key(made), allowed_flavor(made)) == (f"ns/{PARENT}", "spot")


@pytest.mark.parametrize(
    ("variant", "part"),
    [
        pytest.param(with_owner(uid="other"), "does not exist", id="a parent of the same name that is gone"),
        pytest.param(with_owner(name="other"), "does not exist", id="another parent"),
        pytest.param(with_owner(kind="Job"), "no Workload", id="a job controls it"),
        pytest.param(with_owner(apiVersion="evil.io/v1"), "no Workload", id="a Workload of another group"),
        pytest.param(with_owner(controller=False), "no Workload", id="an owner that is no controller"),
        pytest.param(variant_json("spot", cpus=64), "pod sets", id="it requests more than its parent"),
        pytest.param(variant_json("spot", podSets=[]), "pod sets", id="it requests less than its parent"),
        pytest.param(variant_json("spot", queueName="rich"), "queue", id="it waits in another queue"),
        pytest.param(variant_json("spot", preemptionGates=[]), "gate", id="nothing holds it back from preempting"),
        pytest.param(variant_json("spot", metadata={"name": "mine"}), "name", id="a name of its own"),
        pytest.param(variant_json("spot", metadata={"annotations": {}}), "name", id="any flavor"),
        pytest.param(
            variant_json("spot", metadata={"annotations": {"kueue.x-k8s.io/workload-allowed-resource-flavors": "gold"}}),
            "name", id="the name of one flavor, and another one allowed",
        ),
        pytest.param(
            variant_json("spot", metadata={"annotations": {"kueue.x-k8s.io/workload-allowed-resource-flavors": "spot,gold"}}),
            "name", id="two flavors",
        ),
        pytest.param(variant_json("spot", metadata={"namespace": "theirs"}), "does not exist", id="another namespace"),
    ],
)  # fmt: skip
def test_a_forged_variant_is_none(variant: JSON, part: str) -> None:
    """With the reason."""
    assert part in variant_fault(workload(variant), workload(parent_json()))


def test_a_variant_of_a_variant_is_none() -> None:
    """Its owner is a variant itself."""
    made = workload(with_owner(name=variant_name(PARENT, UID, "spot"), uid="uid-of-spot"))

    assert "cannot have variants" in variant_fault(made, workload(variant_json("spot")))


def test_variants_are_in_the_order_of_the_queue() -> None:
    """Strangers and variants for flavors that the ClusterQueue does not have are told apart."""
    owned = [variant_json("on-demand"), variant_json("gone"), variant_json("spot", cpus=2), variant_json("reserved")]
    variants, others = by_flavor(map(workload, owned), workload(parent_json()), POLICY)

    assert list(variants) == ["reserved", "on-demand"]
    assert [o.metadata.name for o in others] == [variant_name(PARENT, UID, f) for f in ("gone", "spot")]


PLAIN: JSON = {"labels": {}}


@pytest.mark.parametrize(
    ("obj", "policy", "want"),
    [
        pytest.param(parent_json(metadata=PLAIN), POLICY, True, id="a job's Workload"),
        pytest.param(parent_json(metadata=PLAIN), None, False, id="its queue has no policy"),
        pytest.param(parent_json(), POLICY, False, id="it has the label"),
        pytest.param(variant_json("spot"), POLICY, False, id="a variant"),
        pytest.param(parent_json(admitted("spot"), metadata=PLAIN), POLICY, False, id="it was admitted before the gate was on"),
        pytest.param(parent_json({"conditions": [condition("Finished")]}, metadata=PLAIN), POLICY, False, id="it has finished"),
        pytest.param(parent_json(metadata=PLAIN, annotations={"kueue.x-k8s.io/elastic-job": "true"}), POLICY, False, id="a slice of an elastic job"),
        pytest.param(parent_json(metadata=PLAIN, annotations={"kueue.x-k8s.io/is-group-workload": "true"}), POLICY, False, id="a group of pods"),
        pytest.param(parent_json(metadata=PLAIN, annotations={"kueue.x-k8s.io/elastic-job": "false"}), POLICY, True, id="a job that is not elastic"),
    ],
)  # fmt: skip
def test_workloads_of_a_queue_with_a_policy_become_parents(obj: JSON, policy: VariantPolicy | None, want: bool) -> None:
    """Life-cycle 4.4."""
    assert waits_for_label(workload(obj), policy) is want


@pytest.mark.parametrize(
    ("migration", "want"),
    [
        pytest.param({"mode": "RetainFirstAdmission"}, [False, False, False], id="the first admission is kept"),
        pytest.param({"mode": "TryPreferredFlavors"}, [True, True, True], id="any flavor"),
        pytest.param({"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "spot"}}, [True, True, False], id="up to the last acceptable one"),
        pytest.param({"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "gone"}}, [True, True, True], id="a flavor that the queue does not have"),
    ],
)  # fmt: skip
def test_the_policy_says_where_a_workload_may_move(migration: JSON, want: list[bool]) -> None:
    """By flavor, in the order of the ClusterQueue; never to a flavor that it does not have."""
    queue = make_cluster_queue(cpus=dict.fromkeys(FLAVORS, 4), concurrentAdmissionPolicy={"migration": migration})
    found = variant_policy(read(wire.ClusterQueue, queue))

    assert found is not None
    assert found.flavors == FLAVORS
    assert [found.may_move_to(flavor) for flavor in FLAVORS] == want
    assert not found.may_move_to("gone")


def test_a_queue_without_a_policy_has_none() -> None:
    """Also a queue that does not exist."""
    assert variant_policy(read(wire.ClusterQueue, make_cluster_queue())) is None
    assert variant_policy(None) is None


@pytest.mark.parametrize(
    ("obj", "concurrent", "want"),
    [
        pytest.param(parent_json(), True, (), id="a parent waits in no queue"),
        pytest.param(parent_json(), False, ("waits",), id="without the gate its label means nothing"),
        pytest.param(parent_json(admitted("spot")), True, ("holds",), id="an admitted parent uses quota"),
        pytest.param(variant_json("spot"), True, ("waits",), id="a variant waits in a queue"),
    ],
)
def test_parents_wait_in_no_queue(obj: JSON, concurrent: bool, want: tuple[str, ...]) -> None:
    """Queueing 1.1; the audits go by this."""
    assert model.standing(workload(obj), concurrent=concurrent) == want
