"""`kqueue place` with policies: where pods go, what waits for a better place, and mistakes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kqueue.placing.run import run
from tests.unit.cli.joint_documents import (
    hosts_of,
    make_gang,
    make_joint,
    make_racks,
    make_running,
    racks_of,
    statuses_of,
)
from tests.unit.cli.place_documents import JSON, ask, problems


def by(*policies: JSON, **more: Any) -> JSON:
    """The member `joint` of a document."""
    return {"policies": list(policies), **more}


def small(name: str, count: int, **changes: Any) -> JSON:
    """A workload of pods of one gpu that may be anywhere."""
    pods = {
        "name": "main",
        "count": count,
        "requests": {"gpu": 1, "cpu": 8},
        "topologyRequest": {"unconstrained": True},
    }
    return {"name": name, "podSets": [pods], **changes}


def test_spreading_puts_one_pod_on_each_host() -> None:
    answer = ask(make_joint(make_racks(a=2, b=2), small("w", 4), joint=by({"name": "spreading"})))
    assert hosts_of(answer) == {"w": ["a1", "a2", "b1", "b2"]}
    assert answer.document["joint"]["cost"] == 40


def test_a_workload_goes_to_its_data_or_waits_for_it() -> None:
    """E12."""
    near = by({"name": "locality"})
    gang = make_gang("w", 2, prefers="rack=b")
    assert racks_of(ask(make_joint(make_racks(a=2, b=3), gang, joint=near))) == {"w": "b"}
    full = {"running": [make_running("r", b1=1, b2=1)], "joint": near}
    early = ask(make_joint(make_racks(a=2, b=2), {**gang, "waitSeconds": 299}, **full))
    assert (early.code, statuses_of(early)) == (1, {"w": "Deferred"})
    (entry,) = early.document["workloads"]
    assert entry["opensAfterSeconds"] == 1
    assert "failure" not in entry
    document = make_joint(make_racks(a=2, b=2), {**gang, "waitSeconds": 299}, **full)
    explained = run(json.dumps(document).encode(), explain=True).explanation
    assert "waits for a place near its data, which has no room now; other places are good enough in 1 s" in explained
    late = ask(make_joint(make_racks(a=2, b=2), {**gang, "waitSeconds": 300}, **full))
    assert (late.code, racks_of(late)) == (0, {"w": "a"})


def test_measured_use_chooses_the_host() -> None:
    """E15."""
    document = make_joint(make_racks(a=2), small("w", 1), joint=by({"name": "utilisation"}))
    assert hosts_of(ask(document)) == {"w": ["a1"]}
    document["statistics"] = {"a1": [{"cpu": "60"}], "a2": [{"cpu": "10"}]}
    assert hosts_of(ask(document)) == {"w": ["a2"]}


def test_workloads_that_disturb_each_other_get_two_hosts() -> None:
    """E13."""
    apart = by({"name": "interference", "parameters": {"matrix": {"x": {"y": 100}}}})
    document = make_joint(
        make_racks(a=2), small("v", 1, interference="x"), small("w", 1, interference="y"), joint=apart
    )
    assert sorted(hosts_of(ask(document)).values()) == [["a1"], ["a2"]]


def test_the_shortest_is_first() -> None:
    document = make_joint(
        make_racks(a=2),
        make_gang("long", 2, expectedRuntime="2h", waitSeconds=9),
        make_gang("short", 2, expectedRuntime="1m"),
        joint=by({"name": "shortest"}),
    )
    assert statuses_of(ask(document)) == {"long": "Left", "short": "Placed"}


@pytest.mark.parametrize(
    ("changes", "path", "said"),
    [
        ({"joint": by({"name": "nothing"})}, "/joint/policies/0/name", "there is no policy nothing; there are fairness"),
        ({"joint": by({"weight": 1})}, "/joint/policies/0/name", "missing"),
        ({"joint": by({"name": "packing", "weight": 0})}, "/joint/policies/0/weight", "from 1 to 1000000"),
        ({"joint": by({"name": "packing"}, {"name": "packing"})}, "/joint/policies/1/name", "twice"),
        ({"joint": by(*({"name": n} for n in ("topology", "packing", "spreading", "network", "locality")))}, "/joint/policies", "may have 4"),
        ({"joint": by({"name": "packing", "parameters": {"each": -1}})}, "/joint/policies/0/parameters/each", "whole number"),
        ({"joint": by({"name": "packing", "each": 1})}, "/joint/policies/0/each", "unknown key"),
        ({"joint": {"policies": {}}}, "/joint/policies", "expected a list"),
        ({"statistics": {"n7": []}}, "/statistics/n7", "no node has this name"),
        ({"statistics": {"a1": [{"cpu": -1}]}}, "/statistics/a1/0/cpu", "never negative"),
        ({"statistics": {"a1": [{"cpu": 1}] * 101}}, "/statistics/a1", "101 samples"),
        ({"statistics": {"a1": [{"disk": 1}]}}, "/statistics/a1/0/disk", "unknown key"),
        ({"workloads": [make_gang("w", 1, prefers="b")]}, "/workloads/0/prefers", "expected level=value"),
        ({"workloads": [make_gang("w", 1, prefers="zone=b")]}, "/workloads/0/prefers", "of the levels rack"),
        ({"workloads": [make_gang("w", 1, expectedRuntime="-1m")]}, "/workloads/0/expectedRuntime", "a duration"),
    ],
)  # fmt: skip
def test_mistakes_are_named(changes: JSON, path: str, said: str) -> None:
    found = problems(ask({**make_joint(make_racks(a=1), make_gang("w", 1)), **changes}))
    assert path in found
    assert said in found[path]
