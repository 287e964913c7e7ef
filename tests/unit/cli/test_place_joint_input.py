"""`kqueue place` with several workloads: every mistake has its JSON pointer and a correction, all at once."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.unit.cli.joint_documents import make_gang, make_joint, make_racks, make_running
from tests.unit.cli.place_documents import HOST, JSON, ask, problems

MANY = 10_001
LIMITED = {"name": "q", "cohort": "c", "quota": {"gpu": {"nominal": 8}}}


def valid() -> JSON:
    """A document without mistakes."""
    gangs = [make_gang(f"w{i}", 1) for i in range(4)]
    return make_joint(make_racks(a=3, b=3), *gangs, queues=[deepcopy(LIMITED)], running=[make_running("r", a1=1, a2=1)])


def _row(path: str, value: Any, said: str, *, at: str | None = None, because: str) -> Any:
    return pytest.param(path, value, path if at is None else at, said, id=because)


def assigned(*domains: tuple[str, int]) -> JSON:
    """An assignment of hosts."""
    return {"levels": [HOST], "domains": [{"values": [host], "count": count} for host, count in domains]}


WORKLOADS = [
    _row("/workloads", [], "needs 1 to 10000 entries, found 0", because="no workload"),
    _row("/workloads", {}, "expected a list, found an object", because="an object as workloads"),
    _row("/workloads", [{}] * MANY, "needs 1 to 10000 entries, found 10001", because="too many workloads"),
    _row("/podSets", [], "cannot be beside workloads", because="pod sets beside workloads"),
    _row("/workload", {}, "cannot be beside workloads", because="a workload beside workloads"),
    _row("/workloads/3/name", None, "expected a text, found null", because="null as name"),
    _row("/workloads/3/name", "", "the name of a workload cannot be empty: give it one", because="an empty name"),
    _row("/workloads/3/name", "w1", "there is another workload of the name w1: give each its own", because="a name twice"),
    _row("/workloads/3", {"podSets": []}, "missing: the name of the workload", at="/workloads/3/name", because="no name"),
    _row("/workloads/3", {"name": "w", "podSets": []}, "at least one pod set", at="/workloads/3/podSets", because="no pods"),
    _row("/workloads/3", {"name": "w"}, "missing: a list of pod sets", at="/workloads/3/podSets", because="no pod sets"),
    _row("/workloads/3/queue", "p", "no queue has this name: the queues are q", because="an unknown queue"),
    _row("/workloads/3/queue", "Q", "the queues are q; perhaps q is meant", because="a queue in capital letters"),
    _row("/workloads/3/priority", 1.5, "expected a whole number from -2147483647", because="a fraction as priority"),
    _row("/workloads/3/waitSeconds", -1, "expected a whole number from 0", because="waiting since the future"),
    _row("/workloads/3/profile", "bestfit", "expected one of BestFit", because="an unknown profile"),
    _row("/workloads/3/podset", [], "unknown key: the keys here are expectedRuntime, interference, name", because="an unknown key of a workload"),
    _row("/workloads/3/podSets/0/assignment", assigned(("a1", 1)), "has no meaning in a joint placement", because="an assignment"),
    _row("/workloads/3/podSets/0/updates", [{"labels": {"a": "1"}}, {"labels": {"a": "2"}}], "two values", at="/workloads/3/podSets/0/updates/1/labels/a", because="updates that contradict each other"),
]  # fmt: skip

QUEUES = [
    _row("/queues/0/name", "", "the name of a queue cannot be empty", because="a queue with an empty name"),
    _row("/queues/1", {"name": "q"}, "there is another queue of the name q", at="/queues/1/name", because="two queues of one name"),
    _row("/queues/0/strategy", "FIFO", "expected one of BestEffortFIFO, StrictFIFO", because="an unknown strategy"),
    _row("/queues/0/quota/gpu", {}, "missing: the quota of the queue", at="/queues/0/quota/gpu/nominal", because="no nominal quota"),
    _row("/queues/0/quota/gpu/nominal", -1, "never negative here", because="a negative quota"),
    _row("/queues/0/quota/gpu/nominal", None, "expected a quantity", because="null as quota"),
    _row("/queues/0/quota/gpu/lendingLimit", 9, "is above nominal: a queue lends at most its own quota", because="lending more than all"),
    _row("/queues/0/quota/gpu/lendingLimit", -1, "never negative here", because="lending less than nothing"),
    _row("/queues/0", {"name": "q", "quota": {"gpu": {"nominal": 8, "lendingLimit": 4}}}, "has no effect without a cohort", at="/queues/0/quota/gpu/lendingLimit", because="lending without a cohort"),
    _row("/queues/0", {"name": "q", "quota": {"gpu": {"nominal": 8, "borrowingLimit": 4}}}, "has no effect without a cohort", at="/queues/0/quota/gpu/borrowingLimit", because="borrowing without a cohort"),
    _row("/queues/0/weight", -1, "expected a whole number from 0", because="a negative weight"),
]  # fmt: skip

RUNNING = [
    _row("/running/0/name", "", "the name of a running workload cannot be empty", because="a running workload without a name"),
    _row("/running/1", make_running("r", b1=1), "another running workload of the name r", at="/running/1/name", because="two of one name"),
    _row("/running/0/queue", "p", "no queue has this name: the queues are q", because="a running workload of an unknown queue"),
    _row("/running/0/assignment", assigned(("a1", 1), ("a9", 1)), "no node is in domain a9", because="an unknown domain"),
    _row("/running/0/assignment", assigned(("a1", 2)), "domain a1 has room for 1 of 2 pods", because="more pods than fit"),
    _row("/running/1", make_running("s", b1=1, a1=1), "domain a1 has room for 0 of 1 pods", at="/running/1/assignment", because="more pods than others leave room for"),
    _row("/running/0/assignment", assigned(("a1", 1)), "has 1 pods, and the pod set has count 2", because="another number of pods"),
    _row("/running/0/assignment/levels", ["rack"], "the levels of this topology are written", because="other levels"),
    _row("/running/0", {"name": "r", "podSets": [{"count": 1}]}, "missing: the domains in which the pods run", at="/running/0/podSets/0/assignment", because="no assignment"),
    _row("/running/0/podSets/0/assignment", assigned(("a1", 2)), "the workload has an assignment, too", because="two assignments"),
    _row("/running/0/podSets/1", {"name": "two", "count": 1}, "belongs to one pod set, and there are several", at="/running/0/assignment", because="one assignment of several pod sets"),
    _row("/running/0/reschedule", "Always", "unknown key: the keys here are assignment", because="a running workload that may move"),
]  # fmt: skip

POLICIES = [
    _row("/workloads/3/prefers", "rack", "expected levels with values such as rack=r1, found 'rack'", because="a level without a value"),
    _row("/workloads/3/prefers", "", "expected levels with values such as rack=r1", because="an empty wish"),
    _row("/workloads/3/expectedRuntime", "soon", "expected a duration such as 90m or 36h, found 'soon'", because="no duration"),
    _row("/workloads/3/expectedRuntime", "-5m", "expected a duration such as 90m or 36h", because="a negative duration"),
    _row("/workloads/3/interference", 3, "expected a text, found 3", because="a number as class of interference"),
    _row("/joint/policies", [{"name": "packin"}], "there is no policy packin; there are", at="/joint/policies/0/name", because="an unknown policy"),
    _row("/joint/policies", [{}], "missing: the name of a policy", at="/joint/policies/0/name", because="a policy without a name"),
    _row("/joint/policies", [], "needs 1 to 4 policies, found 0", because="no policy"),
    _row("/joint/policies", [{"name": "packing", "weight": 0}], "expected a whole number from 1 to 1000000, found 0", at="/joint/policies/0/weight", because="a weight of nothing"),
    _row("/joint/policies", [{"name": "packing", "weight": 1_000_001}], "expected a whole number from 1 to 1000000", at="/joint/policies/0/weight", because="too large a weight"),
    _row("/joint/policies", [{"name": "packing"}] * 2, "packing is there twice", at="/joint/policies/1/name", because="a policy twice"),
    _row("/joint/policies", [{"name": n} for n in ("packing", "spreading", "topology", "network", "shortest")], "has 5 policies, and may have 4", because="five policies"),
    _row("/joint/policies", [{"name": "packing", "parameters": {"eech": 1}}], "packing has no such parameter", at="/joint/policies/0/parameters/eech", because="an unknown parameter"),
    _row("/joint/policies", [{"name": "packing", "parameters": {"each": 1.5}}], "must be a whole number", at="/joint/policies/0/parameters/each", because="a fraction as parameter"),
    _row("/statistics/n7", [], "nodes has no 'n7'", because="samples of an unknown node"),
    _row("/statistics/a1", [{}] * 101, "expected at most 100 samples, found 101", because="too many samples"),
    _row("/statistics/a1", [{"cpu": -1}], "never negative here", at="/statistics/a1/0/cpu", because="negative use"),
    _row("/statistics/a1", [{"gpu": 1}], "unknown key: the keys here are bandwidth, cpu, memory", at="/statistics/a1/0/gpu", because="use of an unknown resource"),
    _row("/joint", {"exact": True, "policies": [{"name": "packing"}]}, "takes no account of policies", at="/joint/exact", because="an optimum by policies"),
]  # fmt: skip

SETTINGS = [
    _row("/joint/order", "strict", "expected one of Strict, Priority; found 'strict'", because="an order in small letters"),
    _row("/joint/steps", 0, "expected a whole number from 1 to 1000000, found 0", because="no step"),
    _row("/joint/rescheduling", "Migrate", "unknown key", because="a setting that place does not have"),
    _row("/joint/exact", "yes", "expected true or false, found 'yes'", because="yes instead of true"),
    _row("/queue", [], "unknown key: the keys here are algorithm, flavor, joint, name, nodes, output, queues, running, statistics, topology, usage, workloads", because="queue instead of queues"),
    _row("/nodes/0/labels/kubernetes.io~1hostname", "a2", "has the host name 'a2', too", at="/nodes/1/labels/kubernetes.io~1hostname", because="two nodes of one host name"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "at", "said"), [*WORKLOADS, *QUEUES, *RUNNING, *POLICIES, *SETTINGS])
def test_a_mistake_is_found(path: str, value: Any, at: str, said: str) -> None:
    document: Any = valid()
    assert ask(document).code == 1, "without the mistake it is valid"
    *way, last = [key.replace("~1", "/") for key in path.strip("/").split("/")]
    here = document
    for key in way:
        here = here[int(key)] if isinstance(here, list) else here.setdefault(key, {})
    if isinstance(here, list):
        here[int(last) : int(last) + 1] = [deepcopy(value)]
    else:
        here[last] = deepcopy(value)
    answer = ask(document)
    assert answer.code == 2
    found = problems(answer)
    assert said in found[at], found


def test_all_mistakes_are_found_at_once() -> None:
    document = valid()
    document |= {"podSets": [], "joint": {"steps": 0, "order": "none"}, "output": {"encoding": "v1"}}
    document["workloads"][1] |= {"queue": "p", "profile": "none"}
    document["running"][0]["assignment"] = assigned(("a9", 2))
    document["queues"].append({"name": "q"})
    assert list(problems(ask(document))) == [
        "/podSets",
        "/queues/1/name",
        "/running/0/assignment",
        "/workloads/1/queue",
        "/workloads/1/profile",
        "/joint/order",
        "/joint/steps",
        "/output/encoding",
    ]


def test_assignments_have_the_levels_of_the_topology() -> None:
    document = valid()
    document["topology"]["levels"] = ["rack"]
    assert "the levels of this topology are written rack" in problems(ask(document))["/running/0/assignment/levels"]
