"""Gangs as commands show them: what is read from objects, which gang a name means, and the page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kqueue.api import gang_names, names
from kqueue.cli.ctl import gang_view
from kqueue.cli.gang_page import gang_page
from kqueue.cli.gang_targets import chosen, find_gang, frameworks_called
from kqueue.errors import ConfigError, ForbiddenError, NotFoundError
from kqueue.jobs.gang import coscheduling_labels, podgroup_volcano, podgroup_x_k8s
from kqueue.jobs.gang.dialect import GangRules, ScheduleTimeouts
from kqueue.jobs.gang.overview import overview
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.gang.record import gang_of
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.switches import JobFeatures
from kqueue.operations.gangs import GangObjects, find_gangs, gangs_in, read_gang_objects
from tests.unit.jobs.builders import JSON
from tests.unit.jobs.pods import NOW, at, condition, group_workload, make_pod

LABELS, PG, VOLCANO = (d.FRAMEWORK for d in (coscheduling_labels, podgroup_x_k8s, podgroup_volcano))
ADMITTED = {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-01-01T12:00:03Z"}


def labelled(name: str, *, gang: str = "g", quorum: int = 3, **more: Any) -> JSON:
    labels = {"pod-group.scheduling.x-k8s.io/name": gang, "pod-group.scheduling.x-k8s.io/min-available": str(quorum)}
    return make_pod(name, role="r", labels=labels, **more)


def of_object(name: str, **more: Any) -> JSON:
    return make_pod(name, role="r", labels={"scheduling.x-k8s.io/pod-group": "nginx"}, **more)


def started(phase: str = "Running") -> dict[str, Any]:
    return {"gated": False, "node": "n", "phase": phase}


def pod_group(name: str = "nginx", *, group: str = "scheduling.x-k8s.io/v1alpha1", **spec: Any) -> JSON:
    meta = {"name": name, "namespace": "team", "uid": f"uid-{name}", "creationTimestamp": at(-5000), "labels": {}}
    return {"apiVersion": group, "kind": "PodGroup", "metadata": meta, "spec": {"minMember": 3, **spec}}


def base_workload(*conditions: JSON, count: int = 3, of: str = f"{PG}:nginx", **status: Any) -> JSON:
    workload = group_workload({"r": count}, *conditions)
    metadata = workload["metadata"]
    metadata |= {"name": "podgroup-nginx-1f3a9", "creationTimestamp": at(-900)}
    metadata["annotations"][gang_names.GANG_ANNOTATION] = of
    metadata["ownerReferences"] = [{"kind": "PodGroup", "name": "nginx", "uid": "uid-nginx", "controller": True}]
    workload["status"] |= status
    return workload


def extra_workload(pod: str, why: str) -> JSON:
    meta = {
        "name": f"pod-{pod}",
        "namespace": "team",
        "annotations": {gang_names.EXTRA_OF_ANNOTATION: "podgroup-nginx-1f3a9"},
        "ownerReferences": [{"kind": "Pod", "name": pod, "uid": f"uid-{pod}"}],
    }
    return {"metadata": meta, "spec": {}, "status": {"conditions": [condition("QuotaReserved", "False", "W", why)]}}


def starting() -> GangObjects:
    """Three pods of which two run, and a fourth one that waits."""
    admission = {
        "clusterQueue": "research",
        "podSetAssignments": [{"name": "r", "flavors": {"cpu": "a100"}, "count": 3}],
    }
    pods = [
        of_object("a", **started()),
        of_object("b", **started()),
        of_object("c", **started("Pending")),
        of_object("x7k2p", annotations={gang_names.EXTRA_ANNOTATION: "true"}, born=9),
    ]
    base = base_workload(condition("QuotaReserved"), ADMITTED, admission=admission)
    extra = extra_workload("x7k2p", "asks for 3 cpu of flavor a100, ClusterQueue research has 1 cpu free")
    return GangObjects(pods, [base, extra], {PG: [pod_group(scheduleTimeoutSeconds=63)]})


def only(found: GangObjects) -> JSON:
    (gang,) = gangs_in(found, now=NOW)
    return gang


def printed(gang: JSON) -> str:
    return "\n".join("  " * line.depth + line.text for line in gang_page(gang))


def test_the_page_of_a_gang_that_starts() -> None:
    """g3_67: phase, counts, quorum, Workload, deadline, and the extra with its reason."""
    assert printed(only(starting())) == (
        "PodGroup team/nginx: Scheduling, 2 of 3 pods run; quorum 3, 4 pods are there\n"
        "  form         scheduling.x-k8s.io/podgroup\n"
        "  queue        main\n"
        "  Workload     podgroup-nginx-1f3a9, admitted by ClusterQueue research at 12:00:03Z, flavor a100\n"
        "  members      3 released, 3 scheduled, 2 running, 0 succeeded, 0 failed; 1 extra waits\n"
        "  deadline     12:01:06Z (63 s after the admission): reached, the quorum is scheduled\n"
        "  extra        x7k2p waits: asks for 3 cpu of flavor a100, ClusterQueue research has 1 cpu free"
    )


def test_the_page_of_a_gang_that_gathers() -> None:
    """g3_67: without a Workload, too: who is missing, and why it waits; the default deadline is called so."""
    assert printed(only(GangObjects([labelled("a")]))) == (
        "Gang team/g: Pending, 0 of 3 pods run; quorum 3, 1 pod is there\n"
        "  form         kqueue.dev/coscheduling-labels\n"
        "  queue        main\n"
        "  Workload     none yet\n"
        "  members      0 released, 0 scheduled, 0 running, 0 succeeded, 0 failed\n"
        "  missing      2 of any role\n"
        "  reason       Incomplete: the group has 1 of 3 pods; it waits for 2 more\n"
        "  deadline     63 s after the admission, by the default of gangs.scheduleTimeout"
    )


def test_a_gang_that_waits_for_quota_shows_the_reason_of_its_workload() -> None:
    """The condition of the Workload has the numbers."""
    reason = condition("QuotaReserved", "False", "Pending", "asks for 3 cpu, 1 is free")
    gang = only(GangObjects([of_object(n) for n in "abc"], [base_workload(reason)], {PG: [pod_group()]}))
    assert (gang["phase"], gang["reason"], gang["message"]) == ("Pending", "Pending", "asks for 3 cpu, 1 is free")


def test_assigned_domains_are_shown() -> None:
    """In the form in which the Workload has them."""
    slices = {
        "levels": ["rack"],
        "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "r1"}], "podCounts": {"universal": 3}}],
    }
    admission = {"clusterQueue": "q", "podSetAssignments": [{"name": "r", "topologyAssignment": slices, "count": 3}]}
    base = base_workload(condition("QuotaReserved"), ADMITTED, admission=admission)
    gang = only(GangObjects([of_object(n, **started()) for n in "abc"], [base], {PG: [pod_group()]}))
    assert gang["workload"]["domains"] == [{"domain": "r1", "pods": 3}]
    assert "  domains      r1 (3)" in printed(gang).splitlines()


def test_rows_have_the_columns_of_all_dialects() -> None:
    """g3_67: the list."""
    found = starting()
    found = GangObjects([*found.pods, labelled("z")], found.workloads, found.group_objects)
    rows = [gang_view.GANGS.row(gang, NOW) for gang in gangs_in(found, now=NOW)]
    assert rows == [
        ["team", "g", LABELS, "Pending", "3", "1", "0", "0", "0", "main", "16m"],
        ["team", "nginx", PG, "Scheduling", "3", "4", "2", "0", "0", "main", "83m"],
    ]
    assert len(gang_view.GANGS.columns) == len(rows[0])


def test_pods_and_workloads_of_an_earlier_object_do_not_count() -> None:
    """A new PodGroup of the name has another UID."""
    new = pod_group()
    new["metadata"]["uid"] = "another"
    old = of_object("a", annotations={names.WORKLOAD_ANNOTATION: "podgroup-nginx-1f3a9"}, **started())
    gang = only(GangObjects([old, of_object("b")], [base_workload(ADMITTED)], {PG: [new]}))
    assert (gang["metadata"]["uid"], gang["members"]["present"]) == ("another", 1)
    assert "workload" not in gang


def test_objects_of_other_schedulers_are_not_listed() -> None:
    """Without a queue, members and Workload; a question about one of them is answered."""
    found = GangObjects(group_objects={PG: [pod_group()]})
    assert gangs_in(found, now=NOW) == []
    assert [gang["metadata"]["name"] for gang in gangs_in(found, now=NOW, strangers=True)] == ["nginx"]


@pytest.mark.parametrize("phase", ["Running", "Finished"])
def test_the_phase_is_the_one_that_its_objects_lead_to(phase: str) -> None:
    """A dialect without an object keeps no phase."""
    state = started("Succeeded" if phase == "Finished" else "Running")
    base = base_workload(condition("QuotaReserved"), ADMITTED, of=f"{LABELS}:g")
    assert only(GangObjects([labelled(n, **state) for n in "abc"], [base]))["phase"] == phase


# --- names


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        ("podgroup", ["scheduling.k8s.io/podgroup", PG, VOLCANO]),
        ("PodGroups", ["scheduling.k8s.io/podgroup", PG, VOLCANO]),
        ("podgroup.scheduling.x-k8s.io", [PG]),
        ("batchprocess", ["kqueue.dev/batchprocess"]),
        ("gang", [LABELS]),
    ],
)
def test_kinds_of_gangs(kind: str, first: list[str]) -> None:
    """The frameworks that count first."""
    assert list(frameworks_called(kind)[0]) == first


@pytest.mark.parametrize("kind", ["job", "group", "workload", "pod", "podgroup.batch"])
def test_other_kinds_are_no_gangs(kind: str) -> None:
    """They are explained as their Workloads."""
    assert frameworks_called(kind) == []


def both_groups() -> list[JSON]:
    volcano = pod_group(group="scheduling.volcano.sh/v1beta1")
    return gangs_in(GangObjects(group_objects={PG: [pod_group()], VOLCANO: [volcano]}), now=NOW, strangers=True)


def test_a_name_in_two_api_groups_is_refused_with_both_forms() -> None:
    """The remedy names a kind with its API group, which is unambiguous."""
    with pytest.raises(
        ConfigError, match=r"write podgroup\.scheduling\.volcano\.sh/nginx or podgroup\.scheduling\.x-k8s"
    ):
        chosen(both_groups(), "podgroup", "nginx")
    found = chosen(both_groups(), "podgroup.scheduling.x-k8s.io", "nginx")
    assert found is not None
    assert found["framework"] == PG


def test_a_gang_by_labels_comes_before_others_of_its_name() -> None:
    """`gang/NAME`."""
    gangs = gangs_in(GangObjects([labelled("a", gang="nginx")], (), {PG: [pod_group()]}), now=NOW, strangers=True)
    found = chosen(gangs, "gang", "nginx")
    assert found is not None
    assert found["framework"] == LABELS


# --- reading


class Served:
    """A cluster with one kind of PodGroup, of which the user may not read another.

    `view`: the gangs that the controller shows; None: no controller answers.
    """

    namespace = "team"

    def __init__(self, *pods: JSON, view: list[JSON] | None = None, **more: int) -> None:
        self.client, self._pods, self._view, self._more = self, pods, view, more
        self.asked: list[tuple[str, str | None]] = []
        self.paths: list[str] = []

    async def get_path(self, path: str, params: Any = None, *, resource: Any) -> JSON:
        self.paths.append(path)
        if self._view is None:
            raise NotFoundError("no", status=404)
        name = (params or {}).get("name", "")
        return {"items": [gang for gang in self._view if name in ("", gang["metadata"]["name"])], **self._more}

    async def list_json(self, resource: Any, namespace: str | None = None, **_: Any) -> list[JSON]:
        self.asked.append((resource.group, namespace))
        if resource.group == "scheduling.volcano.sh":
            raise ForbiddenError("no", status=403)
        if resource.kind == "PodGroup" and resource.group != "scheduling.x-k8s.io":
            raise NotFoundError("no", status=404)
        if resource.kind == "Pod":
            return list(self._pods)
        return [pod_group()] if resource.kind == "PodGroup" else []


async def test_kinds_that_cannot_be_read_are_noted() -> None:
    """Absent kinds are no news; only the namespace of the question is read."""
    served: Any = Served()
    found = await read_gang_objects(served, "team")
    assert found.notes == ("you may not list podgroups.scheduling.volcano.sh; their gangs are shown by their pods",)
    assert {namespace for _, namespace in served.asked} == {"team"}
    assert [obj["metadata"]["name"] for obj in found.group_objects[PG]] == ["nginx"]


@pytest.mark.parametrize("kind", ["gang", "podgroup", "podgroup.scheduling.x-k8s.io", "batchprocess"])
async def test_unknown_names_are_refused(kind: str) -> None:
    """With the way to known ones."""
    served: Any = Served()
    with pytest.raises(NotFoundError, match=f"there is no {kind} team/absent; kqueue list gangs"):
        await find_gang(served, kind, "absent")


async def test_a_podgroup_may_be_one_of_kueue() -> None:
    """The Workload of such a group explains it; a PodGroup of the name comes first."""
    served: Any = Served(make_pod("p", group="old", total=2, role="r"), make_pod("q", group="nginx", total=2, role="r"))
    assert (await find_gang(served, "podgroup", "old"))[0] is None
    found, _ = await find_gang(served, "podgroup", "nginx")
    assert found is not None
    assert found["framework"] == PG


def test_a_page_with_the_explanation_names_no_command_for_details() -> None:
    """The details follow; without them the command stays.  The position is that of the answer."""
    why = "16 cpu asked, 4 are free (2026-01-01 12:00Z); see kqueue explain w -n team"
    reason = condition("QuotaReserved", "False", "Pending", why)
    gang = only(GangObjects([of_object(n) for n in "abc"], [base_workload(reason)], {PG: [pod_group()]}))
    gang["position"] = {"inLocalQueue": 2, "inClusterQueue": 3}
    answer = {
        "metadata": gang["metadata"],
        "state": "Pending",
        "summary": "",
        "asOf": {"time": NOW.isoformat(), "leading": True},
    }
    alone = [line.strip() for line in printed(gang).splitlines()]
    explained = [line.text for line in gang_page(gang | {"explanation": answer}) if line.text.startswith("reason")]
    assert f"reason       Pending: {why}" in alone
    assert "position     3 in its ClusterQueue, 2 in its LocalQueue" in alone
    assert explained == ["reason       Pending: 16 cpu asked, 4 are free"]


async def test_the_view_of_the_controller_is_used_where_it_answers() -> None:
    """Pods are not read then, and the parts that the user does not see are noted."""
    view = gangs_in(GangObjects([labelled("a")]), now=NOW)
    served: Any = Served(view=view, left=3, hidden=2)
    found = await find_gangs(served, None)
    one, _ = await find_gang(served, "gang", "g")
    assert (found.gangs, one) == (view, view[0])
    assert found.notes == [
        "3 more gangs are not shown; name a namespace",
        "2 more gangs are in namespaces whose Workloads you may not read",
    ]
    assert served.asked == []
    assert served.paths[0] == "/apis/visibility.kqueue.dev/v1alpha1/gangs"
    assert served.paths[-1] == "/apis/visibility.kqueue.dev/v1alpha1/namespaces/team/gangs"


async def test_objects_are_read_where_no_controller_answers() -> None:
    """The same list, with a deadline that the configuration may change."""
    served: Any = Served(labelled("a"))
    (gang,) = (await find_gangs(served, "team")).gangs
    assert (gang["metadata"]["name"], gang["deadline"]["isAssumed"]) == ("g", True)


async def test_forms_that_are_off_in_the_controller_are_explained_from_objects() -> None:
    """The controller does not know this PodGroup."""
    served: Any = Served(view=[])
    found, _ = await find_gang(served, "podgroup", "nginx")
    assert found is not None
    assert found["framework"] == PG


@pytest.mark.parametrize(
    ("timeout", "marks", "said"),
    [
        pytest.param(None, {"isDefault": True}, "90 s after the admission, by gangs.scheduleTimeout", id="of the configuration"),
        pytest.param(100, {}, "100 s after the admission", id="of the gang"),
        pytest.param(999, {"isDefault": True}, "200 s after the admission, by gangs.scheduleTimeout", id="cut by the configuration"),
    ],
)  # fmt: skip
def test_a_deadline_tells_whether_the_gang_names_it(timeout: int | None, marks: JSON, said: str) -> None:
    """g3_41, g3_42: with the timeouts of the configuration."""
    rules = GangRules(timeouts=ScheduleTimeouts(base=60, per_member=10, maximum=200))
    obj = pod_group()
    obj["spec"] |= {"scheduleTimeoutSeconds": timeout} if timeout else {}
    ref = GangRef(framework=PG, namespace="team", name="nginx")
    gang = gang_of(ref, obj, [managed_pod(of_object("a"), JobFeatures(gangs=(PG,)))], None, rules, now=NOW)
    shown = overview(gang, obj, None, rules=rules)
    assert {key: value for key, value in shown["deadline"].items() if key.startswith("is")} == marks
    assert printed(shown).splitlines()[-1].split("deadline")[1].strip() == said


@pytest.mark.parametrize("queued", [False, True])
def test_levels_of_the_topology_are_shown(queued: bool) -> None:
    """Of the group object first, then of the Workload."""
    obj = pod_group()
    obj["metadata"]["annotations"] = {"kueue.x-k8s.io/podset-required-topology": "example.com/rack"}
    workload = base_workload(condition("QuotaReserved", "False", "Pending", "no room"))
    workload["spec"]["podSets"][0]["topologyRequest"] = {"required": "example.com/rack"}
    gang = only(GangObjects([of_object(n) for n in "abc"], [workload] if queued else [], {PG: [obj]}))
    assert gang["topology"] == {"required": ["example.com/rack"]}
    assert "  topology     required example.com/rack" in printed(gang).splitlines()


def test_the_age_is_that_of_the_group_object() -> None:
    """g1_7."""
    gang = only(starting())
    assert gang["metadata"]["creationTimestamp"] == at(-timedelta(seconds=5000).total_seconds())
