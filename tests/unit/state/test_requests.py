"""What workloads ask for in their surroundings, and what is read of it only once."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.core.quota_requests import Counting, Transformation
from kqueue.core.workload import Head
from kqueue.errors import InvalidObjectError
from kqueue.state import requests as forms
from kqueue.state.requests import Requests

JSON = dict[str, Any]


def make_limit_range(
    *items: JSON, name: str = "bounds", namespace: str = "ns", kind: str = "Container"
) -> wire_core.LimitRange:
    limits = [{"type": kind, **item} for item in items]
    obj = {"metadata": {"name": name, "namespace": namespace}, "spec": {"limits": limits}}
    return msgspec.convert(obj, wire_core.LimitRange)


def make_runtime_class(name: str = "sandboxed", **pod_fixed: str) -> wire_core.RuntimeClass:
    obj = {"metadata": {"name": name}, "overhead": {"podFixed": pod_fixed} if pod_fixed else None}
    return msgspec.convert(obj, wire_core.RuntimeClass)


def make_workload(
    *,
    requests: JSON | None = None,
    limits: JSON | None = None,
    pod: JSON | None = None,
    metadata: JSON | None = None,
    status: JSON | None = None,
    **pod_set: Any,
) -> wire.Workload:
    """Four pods of one container that requests 1 cpu."""
    container = {"name": "main", "resources": {"requests": requests or {}, "limits": limits or {}}}
    spec = {"containers": [container], **(pod or {})}
    obj = {
        "metadata": {"name": "w", "namespace": "ns", "uid": "u", "generation": 1, **(metadata or {})},
        "spec": {"queueName": "main", "podSets": [{"name": "a", "count": 4, "template": {"spec": spec}, **pod_set}]},
        "status": status or {},
    }
    return msgspec.convert(obj, wire.Workload)


def head_of(requests: Requests, obj: wire.Workload, *, again: bool = False) -> Head:
    item = requests.pending(obj) if again else None
    return requests.head(obj, item, queue="team", topology_only=False, last_tried={})


DEFAULTS = {"default": {"cpu": "2"}, "defaultRequest": {"cpu": "500m"}}
SANDBOXED = {"runtimeClassName": "sandboxed"}


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(make_workload(requests={"cpu": "1"}), {"cpu": 1000}, id="what-it-says"),
        pytest.param(make_workload(), {"cpu": 500}, id="defaults-of-its-namespace"),
        pytest.param(make_workload(metadata={"namespace": "other"}), {}, id="not-those-of-another-namespace"),
        pytest.param(
            make_workload(requests={"cpu": "1"}, pod=SANDBOXED),
            {"cpu": 1250, "memory": 1024},
            id="overhead-of-its-runtime-class",
        ),
        pytest.param(
            make_workload(requests={"cpu": "1"}, pod={**SANDBOXED, "overhead": {"cpu": "10m"}}),
            {"cpu": 1010},
            id="its-own-overhead-wins",
        ),
        pytest.param(
            make_workload(requests={"cpu": "1"}, pod={"runtimeClassName": "nowhere"}),
            {"cpu": 1000},
            id="a-runtime-class-that-is-missing-adds-nothing",
        ),
        pytest.param(
            make_workload(limits={"memory": "2Ki"}), {"cpu": 500, "memory": 2048}, id="limits-where-no-request-is"
        ),
    ],
)
def test_requests_are_read_with_what_surrounds_them(obj: wire.Workload, want: dict[str, int]) -> None:
    """The same for planning, for quota and for what is charged to nodes."""
    requests = Requests()
    assert requests.on_limit_range(None, make_limit_range(DEFAULTS)) == "ns"
    assert requests.on_runtime_class(None, make_runtime_class(cpu="250m", memory="1Ki")) == "sandboxed"
    (made,) = head_of(requests, obj).pod_sets

    assert (made.request.requests, made.quota_requests) == (want, want)
    assert requests.per_pod(obj) == {"a": want}
    assert requests.problem(obj) == ""


def test_surroundings_that_go_leave_nothing_behind() -> None:
    """As if they had never been; what changes nothing concerns nobody."""
    requests = Requests()
    limits, runtime = make_limit_range(DEFAULTS), make_runtime_class(cpu="1")
    obj = make_workload(pod=SANDBOXED)
    before = requests.pending(obj)
    requests.on_limit_range(None, limits)
    requests.on_runtime_class(None, runtime)
    assert requests.on_limit_range(limits, limits) is None
    assert requests.on_runtime_class(runtime, runtime) is None
    during = requests.pending(obj)

    assert requests.on_limit_range(limits, None) == "ns"
    assert requests.on_runtime_class(runtime, None) == "sandboxed"
    assert requests.on_runtime_class(runtime, None) is None
    assert (during.shape, during.version) != (before.shape, before.version)
    assert requests.pending(obj) == before
    assert requests.per_pod(obj) == {"a": {}}


@pytest.mark.parametrize(
    ("changed", "concerned"),
    [
        pytest.param(make_limit_range({"max": {"cpu": "4"}}), True, id="a-bound"),
        pytest.param(make_limit_range({**DEFAULTS, "default": {"cpu": "3"}}), True, id="a-default"),
        pytest.param(make_limit_range(DEFAULTS, {"max": {"storage": "1Gi"}}), True, id="another-bound"),
        pytest.param(make_limit_range(), True, id="nothing-is-left"),
        pytest.param(make_limit_range({"default": {"cpu": "2000m"}, **DEFAULTS}), False, id="the-same-in-other-words"),
    ],
)
def test_workloads_are_tried_again_when_their_surroundings_change(
    changed: wire_core.LimitRange, concerned: bool
) -> None:
    """Shape and version follow, so that a parked workload is looked at again and equals are equal."""
    requests = Requests()
    first = make_limit_range(DEFAULTS)
    requests.on_limit_range(None, first)
    before = requests.pending(make_workload())

    assert (requests.on_limit_range(first, changed) is not None) is concerned
    after = requests.pending(make_workload())
    assert (after.shape != before.shape, after.version != before.version) == (concerned, concerned)


def test_equal_limit_ranges_give_equal_shapes() -> None:
    """Workloads of two namespaces with the same defaults cannot differ in the outcome of a try."""
    requests = Requests()
    for namespace in ("ns", "twin"):
        requests.on_limit_range(None, make_limit_range(DEFAULTS, namespace=namespace))
    one, two = (requests.pending(make_workload(metadata={"namespace": n})) for n in ("ns", "twin"))

    assert one.shape == two.shape
    assert one.shape != requests.pending(make_workload(metadata={"namespace": "other"})).shape


def test_runtime_classes_concern_those_that_name_them() -> None:
    """Other workloads keep their shape, so that nothing is tried again for nothing."""
    requests = Requests()
    plain, named = make_workload(), make_workload(pod=SANDBOXED)
    before = requests.pending(plain), requests.pending(named)
    requests.on_runtime_class(None, make_runtime_class(cpu="1"))
    after = requests.pending(plain), requests.pending(named)

    assert (after[0] == before[0], after[1].shape == before[1].shape) == (True, False)


@pytest.mark.parametrize(
    ("obj", "limits", "want"),
    [
        pytest.param(
            make_workload(requests={"cpu": "4"}, limits={"cpu": "2"}),
            [],
            "Pod set a: Container main requests 4 cpu, and its limit is 2: lower the request or raise the limit",
            id="a-request-above-its-limit",
        ),
        pytest.param(
            make_workload(requests={"cpu": "4"}),
            [make_limit_range({"default": {"cpu": "2"}})],
            "Pod set a: Container main requests 4 cpu, and its limit is 2: lower the request or raise the limit",
            id="a-request-above-the-default-limit",
        ),
        pytest.param(
            make_workload(requests={"cpu": "4"}),
            [make_limit_range({"max": {"cpu": "2"}}), make_limit_range({"max": {"cpu": "3"}}, name="other")],
            "Pod set a: Container main asks for 4 cpu, and LimitRange bounds allows a container at most 2: "
            "ask for less or change the LimitRange",
            id="the-narrowest-bound-is-named",
        ),
        pytest.param(
            make_workload(requests={"cpu": "1"}, pod=SANDBOXED),
            [make_limit_range({"max": {"cpu": "1"}}, kind="Pod")],
            "Pod set a: The pod as a whole asks for 1250m cpu, and LimitRange bounds allows a pod at most 1: "
            "ask for less or change the LimitRange",
            id="overhead-counts-against-the-pods-bound",
        ),
        pytest.param(
            make_workload(requests={"cpu": "1"}),
            [make_limit_range({"max": {"cpu": "1m"}}, kind="PersistentVolumeClaim")],
            "",
            id="bounds-of-volumes-do-not-matter",
        ),
        pytest.param(
            make_workload(requests={"cpu": "1"}),
            [make_limit_range({"max": {"cpu": "much"}, "min": {"cpu": "2"}})],
            "Pod set a: Container main asks for 1 cpu, and LimitRange bounds wants a container to have at least 2: "
            "ask for more or change the LimitRange",
            id="a-bound-that-cannot-be-read-does-not-hide-the-others",
        ),
    ],
)  # fmt: skip
def test_requests_that_may_not_be_are_told(obj: wire.Workload, limits: list[wire_core.LimitRange], want: str) -> None:
    """The head is refused with the reason; who asks without trying gets the same."""
    requests = Requests()
    requests.on_runtime_class(None, make_runtime_class(cpu="250m"))
    for one in limits:
        requests.on_limit_range(None, one)

    assert head_of(requests, obj).problem == want
    assert requests.problem(obj) == want


CLAIM = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]}


@pytest.mark.parametrize(
    ("pod", "claims", "refuses", "refused"),
    [
        pytest.param(CLAIM, [], True, True, id="the-pod-claims"),
        pytest.param({}, [{"name": "gpus"}], True, True, id="a-container-claims"),
        pytest.param({}, [], True, False, id="nothing-is-claimed"),
        pytest.param(CLAIM, [{"name": "gpus"}], False, False, id="claims-are-let-through"),
    ],
)
def test_pods_that_claim_devices_are_refused_in_words(
    pod: dict[str, Any], claims: list[dict[str, str]], refuses: bool, refused: bool
) -> None:
    """Nothing counts the devices, so they would pass by the quota."""
    plain = make_workload(requests={"cpu": "1"}, pod=pod)
    template = plain.spec.pod_sets[0].template
    used = tuple(wire_core.UsedClaim(**claim) for claim in claims)
    containers = tuple(
        msgspec.structs.replace(c, resources=msgspec.structs.replace(c.resources, claims=used))
        for c in template.spec.containers
    )
    spec = msgspec.structs.replace(template.spec, containers=containers)
    pod_set = msgspec.structs.replace(plain.spec.pod_sets[0], template=msgspec.structs.replace(template, spec=spec))
    obj = msgspec.structs.replace(plain, spec=msgspec.structs.replace(plain.spec, pod_sets=(pod_set,)))
    requests = Requests(refuses_claims=refuses)

    told = "Pod set a: spec.resourceClaims claims devices, which are not counted against quota; ask for an extended"
    assert requests.problem(obj).startswith(told) is refused
    assert head_of(requests, obj).problem == requests.problem(obj)


def test_all_that_is_wrong_with_a_workload_is_told_at_once() -> None:
    """A profile that does not exist, and requests above their limits."""
    metadata = {"annotations": {"kqueue.dev/placement-profile": "tidy"}}
    obj = make_workload(requests={"cpu": "4"}, limits={"cpu": "2"}, metadata=metadata)
    problem = head_of(Requests(), obj).problem

    assert "'tidy' is no profile" in problem
    assert "requests 4 cpu, and its limit is 2" in problem


def test_requests_that_cannot_be_read_are_told_each_time() -> None:
    """Also to the second of two equal workloads."""
    requests = Requests()
    obj = make_workload(requests={"cpu": "-1"})
    path = r"spec.podSets\[0\].template.spec.containers\[0\].resources.requests\[cpu\]: must not be negative"
    for _ in range(2):
        with pytest.raises(InvalidObjectError, match=path):
            head_of(requests, obj, again=True)
    assert "must not be negative; write 0 or more" in requests.problem(obj)
    assert requests.per_pod(obj) == {"a": {}}


def test_what_is_counted_as_something_else_is_placed_as_it_is() -> None:
    """Quota by the rules, nodes by the requests."""
    credit = Transformation(input="cpu", outputs={"credit": Fraction(3)}, keeps_input=False)
    requests = Requests(Counting(excluded_prefixes=("mem",), transformations={"cpu": credit}))
    obj = make_workload(requests={"cpu": "2", "memory": "1Ki"})
    (made,) = head_of(requests, obj).pod_sets

    assert made.request.requests == {"cpu": 2000, "memory": 1024}
    assert made.quota_requests == {"credit": 6}
    assert requests.per_pod(obj) == {"a": {"cpu": 2000, "memory": 1024}}


@pytest.mark.parametrize(
    ("partial", "minimum", "ended", "want"),
    [
        pytest.param(True, 2, 0, 2, id="fewer-pods-will-do"),
        pytest.param(False, 2, 0, None, id="not-where-partial-admission-is-off"),
        pytest.param(True, None, 0, None, id="not-where-it-says-nothing"),
        pytest.param(True, 4, 0, None, id="all-pods-are-not-fewer"),
        pytest.param(True, 2, 1, 2, id="also-when-some-have-ended"),
        pytest.param(True, 2, 2, None, id="unless-no-more-are-needed-anyway"),
    ],
)
def test_fewer_pods_will_do_where_the_pod_set_says_so(
    partial: bool, minimum: int | None, ended: int, want: int | None
) -> None:
    """By the gate."""
    status = {"reclaimablePods": [{"name": "a", "count": ended}]} if ended else {}
    requests = Requests(partial_admission=partial)
    (made,) = head_of(requests, make_workload(minCount=minimum, status=status)).pod_sets

    assert (made.request.count, made.min_count) == (4 - ended, want)


# --- what is read once -----------------------------------------------------------------------------------------------


def test_equal_workloads_are_read_once() -> None:
    """They share what was read; one that differs does not."""
    requests = Requests()
    twin = make_workload(requests={"cpu": "1"}, metadata={"name": "x", "uid": "v"})
    one, two = (head_of(requests, w, again=True) for w in (make_workload(requests={"cpu": "1"}), twin))
    other = head_of(requests, make_workload(requests={"cpu": "2"}), again=True)

    assert one.pod_sets is two.pod_sets
    assert other.pod_sets[0].request.requests == {"cpu": 2000}


def test_a_queue_with_topology_alone_does_not_share_with_others() -> None:
    """There, pods are placed that do not ask for it."""
    requests = Requests()
    obj = make_workload()
    implied = [
        requests.head(obj, queue="team", topology_only=only, last_tried={}).pod_sets[0].request.topology.implied
        for only in (False, True, False)
    ]

    assert implied == [False, True, False]


@pytest.mark.parametrize(
    "newer",
    [
        pytest.param(make_workload(requests={"cpu": "2"}, metadata={"generation": 2}), id="edited-since-it-was-queued"),
        pytest.param(
            make_workload(requests={"cpu": "1"}, status={"reclaimablePods": [{"name": "a", "count": 1}]}),
            id="some-of-its-pods-ended-since",
        ),
        pytest.param(
            make_workload(requests={"cpu": "2"}, metadata={"uid": "v"}), id="another-one-of-its-name-came-since"
        ),
    ],
)
def test_what_the_queues_know_is_not_taken_for_newer_objects(newer: wire.Workload) -> None:
    """The newest object is tried, whatever was known when it was queued."""
    requests = Requests()
    item = requests.pending(make_workload(requests={"cpu": "1"}))
    made = requests.head(newer, item, queue="team", topology_only=False, last_tried={})

    assert made.pod_sets == model.head(newer, queue="team", topology_only=False, last_tried={}).pod_sets


def test_a_change_between_queueing_and_trying_counts() -> None:
    """The surroundings are those of the try."""
    requests = Requests()
    obj = make_workload()
    item = requests.pending(obj)
    requests.on_limit_range(None, make_limit_range(DEFAULTS))
    head = requests.head(obj, item, queue="team", topology_only=False, last_tried={})

    assert head.pod_sets[0].quota_requests == {"cpu": 500}


def test_forms_that_are_all_different_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest ones are forgotten, and read again for whoever has one of them."""
    monkeypatch.setattr(forms, "_MOST_FORMS", 3)
    requests = Requests()
    asked = [str(cpus) for cpus in range(1, 6)]
    made = [head_of(requests, make_workload(requests={"cpu": cpus})) for cpus in (*asked, "1")]

    assert [head.pod_sets[0].quota_requests["cpu"] for head in made] == [1000, 2000, 3000, 4000, 5000, 1000]
    assert len(requests._forms) == 3


@pytest.mark.parametrize("reclaims", [True, False])
def test_reclaimable_pods_count_only_with_their_gate(reclaims: bool) -> None:
    """Gate ReclaimablePods: one of four pods has ended, and gives back its quota and its place, or neither."""
    place: dict[str, Any] = {"levels": ["rack"], "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "r"}]}]}
    stands, gone = ({**place, "slices": [{**place["slices"][0], "podCounts": {"universal": n}}]} for n in (4, 1))
    held = {"name": "a", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "4"}, "count": 4}
    status = {
        "reclaimablePods": [{"name": "a", "count": 1}],
        "finishedPods": [{"name": "a", "topologyAssignment": gone}],
        "admission": {"clusterQueue": "team", "podSetAssignments": [held | {"topologyAssignment": stands}]},
        "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}],
    }
    obj, requests = make_workload(requests={"cpu": "1"}, status=status), Requests(reclaims=reclaims)
    bare = make_workload(requests={"cpu": "1"})
    left = 3 if reclaims else 4
    admission = requests.admission(obj)

    assert admission is not None
    (a,) = admission.pod_sets
    assert (a.usage, a.topology and a.topology.domains[0].count) == ({"cpu": left * 1000}, left)
    assert requests.total(obj) == {"cpu": left * 1000}
    assert [head_of(requests, obj, again=again).pod_sets[0].request.count for again in (False, True)] == [left, left]
    assert (requests.pending(obj).shape == requests.pending(bare).shape) is not reclaims
    assert (requests.pending(obj).version == requests.pending(bare).version) is not reclaims
