"""`kqueue place` with several workloads: remarks on valid input that is probably a mistake."""

from __future__ import annotations

import json

from kqueue.placing.run import run
from tests.unit.cli.joint_documents import make_gang, make_joint, make_racks
from tests.unit.cli.place_documents import HOST, JSON, ask, problems


def odd() -> JSON:
    """A document with a mistake of each kind."""
    racks = make_racks(a=3)
    del racks["nodes"][2]["labels"]["rack"]
    unknown, empty, rest = make_gang("w1", 1), make_gang("w2", 0), make_gang("w3", 3)
    unknown["podSets"][0]["topologyRequest"] = {"required": "rac"}
    rest["podSets"][0]["topologyRequest"] |= {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}
    queues = [{"name": "q", "quota": {"gpu": {"nominal": 24}, "gpus": {"nominal": 8}, "pods": {"nominal": 100}}}]
    tas = [{"values": ["a9"], "requests": {"gpu": 8}, "count": 1}]
    return make_joint(racks, unknown, empty, rest, queues=queues, usage={"tas": tas})


SAID = {
    "/nodes/2/labels/rack": "node 'a3' is left out of the topology",
    "/usage/tas/0/values": f"no node has the label {HOST} 'a9'",
    "/queues/0/quota/gpus": "no workload requests this resource, so its quota limits nothing: correct the name, or leave it out; perhaps gpu is meant",
    "/workloads/0/podSets/0/topologyRequest/required": "perhaps rack is meant",
    "/workloads/1/podSets/0/count": "0 pods: the pod set is skipped",
    "/workloads/2/podSets/0/topologyRequest/podSetSliceSize": "2 does not divide count 3: 1 pod is not placed",
}  # fmt: skip


def test_probable_mistakes_are_remarked_in_the_order_of_the_document() -> None:
    found = {remark.path: remark.text for remark in ask(odd()).remarks}
    assert list(found) == list(SAID)
    assert not {path: found[path] for path, said in SAID.items() if said not in found[path]}


def test_remarks_are_errors_when_strict() -> None:
    answer = run(json.dumps(odd()).encode(), strict=True)
    assert answer.code == 2
    assert list(problems(answer)) == list(SAID)
    assert answer.remarks == ()


def test_a_usual_document_has_no_remarks() -> None:
    document = make_joint(make_racks(a=3), make_gang("w1", 1), queues=[{"name": "q", "quota": {"gpu": {"nominal": 8}}}])
    assert ask(document).remarks == ()
    assert run(json.dumps(document).encode(), strict=True).code == 0
