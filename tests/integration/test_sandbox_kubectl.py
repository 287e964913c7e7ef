"""The real kubectl against the sandbox, and against the real server to see that it says the same."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from kqueue.sandbox import Sandbox, SandboxOptions
from tests.integration.controlplane import binaries
from tests.integration.controlplane.cluster import Cluster, KubectlError
from tests.unit.sandbox.objects import definition

pytestmark = pytest.mark.skipif(
    binaries.kubectl() is None and not binaries.required(),
    reason=f"!!!! NO KUBECTL, NEITHER BUILT NOR ON PATH: {binaries.REMEDY}",
)


class Plane(Protocol):
    """Either control plane, as `either_plane` gives it."""

    kubeconfig: Path
    cluster: Cluster


class Kubectl:
    """kubectl in a namespace of its own."""

    def __init__(self, plane: Plane, namespace: str) -> None:
        self._plane, self.namespace, self.cluster = plane, namespace, plane.cluster

    async def __call__(self, *args: str, stdin: Any = None) -> str:
        text = stdin if isinstance(stdin, str | None) else json.dumps(stdin)
        return await self.cluster.kubectl("-n", self.namespace, *args, stdin=text)

    async def refused(self, *args: str, stdin: Any = None) -> str:
        """What it complains of; it must."""
        with pytest.raises(KubectlError) as caught:
            await self(*args, stdin=stdin)
        return str(caught.value)

    async def path(self, path: str, *target: str) -> str:
        return await self("get", *target, "-o", f"jsonpath={path}")


@pytest.fixture
async def kubectl(either_plane: Plane) -> Kubectl:
    return Kubectl(either_plane, await either_plane.cluster.create_namespace("kubectl"))


def job(**spec: Any) -> dict[str, Any]:
    """A suspended Job, so that nothing moves."""
    variables = [{"name": "ONE", "value": "1"}, {"name": "TWO", "value": "2"}]
    container = {"name": "main", "image": "img:v1", "env": variables}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "labels": {"team": "a"}},
        "spec": {"suspend": True, "parallelism": 2, "template": template, **spec},
    }


async def test_apply_three_ways(kubectl: Kubectl) -> None:
    """Created, unchanged, configured; what left the file leaves the object, what others wrote stays."""
    assert await kubectl("apply", "-f", "-", stdin=job()) == "job.batch/j created\n"
    assert await kubectl("apply", "-f", "-", stdin=job()) == "job.batch/j unchanged\n"
    await kubectl("label", "job", "j", "other=hand")
    changed = job(parallelism=3)
    changed["metadata"]["labels"] = {"new": "b"}
    difference = await kubectl.refused("diff", "-f", "-", stdin=changed)
    assert await kubectl("apply", "-f", "-", stdin=changed) == "job.batch/j configured\n"

    assert "+  parallelism: 3" in difference
    assert await kubectl.path("{.spec.parallelism}", "job", "j") == "3"
    assert json.loads(await kubectl.path("{.metadata.labels}", "job", "j")) == {"new": "b", "other": "hand"}


async def test_apply_on_the_server(kubectl: Kubectl) -> None:
    """Fields have owners: what is applied no more goes, what another applied is a conflict."""

    def maps(**data: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}

    async def apply(manager: str, *more: str, **data: str) -> str:
        return await kubectl(
            "apply", "--server-side", f"--field-manager={manager}", *more, "-f", "-", stdin=maps(**data)
        )

    assert await apply("one", a="1", b="2") == "configmap/c serverside-applied\n"
    await apply("two", c="3")
    with pytest.raises(KubectlError, match=r'conflict with "one": \.data\.a'):
        await apply("two", a="9", c="3")
    await apply("two", "--force-conflicts", a="9", c="3")
    await apply("one")

    assert json.loads(await kubectl.path("{.data}", "cm", "c")) == {"a": "9", "c": "3"}


async def test_patches_of_all_kinds(kubectl: Kubectl) -> None:
    """Strategic, merge, JSON, and the status on its own."""
    await kubectl("apply", "-f", "-", stdin=job())
    template = {"metadata": {"annotations": {"a": "b"}}, "spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}
    await kubectl("patch", "job", "j", "-p", json.dumps({"spec": {"template": template}}))
    await kubectl("patch", "job", "j", "--type=merge", "-p", '{"spec": {"parallelism": 4}}')
    await kubectl(
        "patch", "job", "j", "--type=json", "-p", '[{"op": "add", "path": "/metadata/labels/x", "value": "y"}]'
    )
    await kubectl("annotate", "job", "j", "note=hello")

    found = json.loads(await kubectl("get", "job", "j", "-o", "json"))
    assert found["spec"]["template"]["spec"]["tolerations"] == template["spec"]["tolerations"]  # type: ignore[index]
    assert (found["spec"]["parallelism"], found["metadata"]["labels"]["x"]) == (4, "y")
    assert found["metadata"]["annotations"]["note"] == "hello"
    again = await kubectl("replace", "-f", "-", stdin=found)
    assert again == "job.batch/j replaced\n"
    stale = {**found, "metadata": {**found["metadata"], "resourceVersion": "1"}}
    assert "the object has been modified" in await kubectl.refused("replace", "-f", "-", stdin=stale)


async def test_objects_are_created_by_command(kubectl: Kubectl) -> None:
    """kubectl create speaks protobuf."""
    await kubectl("create", "job", "j", "--image=img:v1", "--", "true")
    await kubectl("create", "configmap", "c", "--from-literal=a=1")
    await kubectl("create", "secret", "generic", "s", "--from-literal=a=1")
    await kubectl("create", "serviceaccount", "who")
    await kubectl("create", "role", "r", "--verb=get", "--resource=pods")
    await kubectl("create", "rolebinding", "rb", "--role=r", f"--serviceaccount={kubectl.namespace}:who")
    await kubectl("create", "quota", "q", "--hard=pods=4")
    name = f"{kubectl.namespace}-high"
    await kubectl("create", "priorityclass", name, "--value=7")

    assert await kubectl.path("{.spec.template.spec.containers[0].command[0]}", "job", "j") == "true"
    assert await kubectl.path("{.data.a}", "secret", "s") == "MQ=="
    assert await kubectl.path("{.value}", "priorityclass", name) == "7"
    assert await kubectl.path("{.rules[0].verbs[0]}", "role", "r") == "get"
    assert await kubectl("auth", "can-i", "create", "pods") == "yes\n"


async def test_lists_and_columns(kubectl: Kubectl) -> None:
    """Tables, labels, selectors, wide, names, all namespaces."""
    await kubectl("apply", "-f", "-", stdin=job())

    heads = (await kubectl("get", "jobs")).splitlines()[0].split()
    wide = await kubectl("get", "jobs", "-o", "wide", "--show-labels")
    everywhere = await kubectl("get", "jobs", "-A", "--field-selector=metadata.name=j")

    assert heads == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert "img:v1" in wide
    assert "team=a" in wide
    assert kubectl.namespace in everywhere
    assert await kubectl("get", "jobs", "-l", "team in (a, b),!x", "-o", "name") == "job.batch/j\n"
    assert await kubectl("get", "jobs", "-l", "team!=a", "-o", "name") == ""
    assert "job.batch/j" in await kubectl("get", "all")


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        pytest.param({"paralelism": 2}, 'unknown field "spec.paralelism"', id="a-field-that-is-misspelt"),
        pytest.param({"parallelism": -1}, "spec.parallelism: Invalid value: -1", id="a-number-below-zero"),
        pytest.param({"completionMode": "Indexed"}, "spec.completions: Required value", id="a-field-that-is-missing"),
    ],
)
async def test_mistakes_are_named(kubectl: Kubectl, spec: dict[str, Any], complaint: str) -> None:
    """With their fields, as the real server does."""
    assert complaint in await kubectl.refused("apply", "-f", "-", stdin=job(**spec))


CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"


@pytest.mark.parametrize(
    ("verb", "text", "complaint"),
    [
        pytest.param("apply", "a: [b\n", "error converting YAML to JSON", id="malformed YAML"),
        pytest.param("apply", "kind: Job\n", "apiVersion not set", id="a manifest without apiVersion"),
        pytest.param(
            "apply", "apiVersion: v1\nkind: Nope\nmetadata: {name: a}\n", 'no matches for kind "Nope" in version "v1"',
            id="an unknown kind",
        ),
        pytest.param(
            "apply", "apiVersion: no.such/v1\nkind: Job\nmetadata: {name: a}\n",
            'no matches for kind "Job" in version "no.such/v1"', id="an unknown group",
        ),
        pytest.param("create", CONFIG_MAP + "dat: {}\n", 'strict decoding error: unknown field "dat"', id="a field too many"),
        pytest.param(
            "create", CONFIG_MAP + "data: {x: 1}\n", 'ConfigMap in version "v1" cannot be handled as a ConfigMap:',
            id="a number for a text",
        ),
        pytest.param(
            "create", CONFIG_MAP.replace("name: c", "name: C_d"),
            """metadata.name: Invalid value: "C_d": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex""",
            id="a name of other letters",
        ),
        pytest.param(
            "create", CONFIG_MAP.replace("name: c", ""),
            "metadata.name: Required value: name or generateName is required", id="no name",
        ),
        pytest.param(
            "create", CONFIG_MAP.replace("name: c", "name: c, labels: {x: 'a b'}"),
            'metadata.labels: Invalid value: "a b": a valid label must be', id="a label's value with a blank",
        ),
        pytest.param(
            "create", CONFIG_MAP.replace("name: c", "name: c, finalizers: [x]"),
            'metadata.finalizers[0]: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified',
            id="a finalizer of nobody",
        ),
        pytest.param(
            "create", CONFIG_MAP.replace("name: c", "name: c, ownerReferences: [{kind: x}]"),
            'metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty', id="an owner half named",
        ),
        pytest.param("replace", CONFIG_MAP, 'configmaps "c" not found', id="replacing what is not there"),
        pytest.param("delete", CONFIG_MAP, 'configmaps "c" not found', id="deleting what is not there"),
        pytest.param(
            "create", CONFIG_MAP.replace("name: c", "name: c, namespace: other"),
            'the namespace from the provided object "other" does not match', id="two namespaces",
        ),
    ],
)  # fmt: skip
async def test_wrong_manifests_are_refused_in_the_same_words(
    kubectl: Kubectl, verb: str, text: str, complaint: str
) -> None:
    """What is wrong is named, where the server says it and where kubectl does."""
    assert complaint in await kubectl.refused(verb, "-f", "-", stdin=text)


@pytest.mark.parametrize(
    ("patch", "complaint"),
    [
        pytest.param('{"spec": {"parallelism": "x"}}', "The request is invalid: patch: Invalid value", id="a text for a number"),
        pytest.param('{"metadata": {"labels": {"a": "b c"}}}', 'metadata.labels: Invalid value: "b c"', id="a bad label"),
        pytest.param('{"metadata": {"resourceVersion": "1"}}', "the object has been modified", id="an old version"),
        pytest.param("{bad", "BadRequest", id="malformed JSON"),
    ],
)  # fmt: skip
async def test_wrong_patches_are_refused_in_the_same_words(kubectl: Kubectl, patch: str, complaint: str) -> None:
    """Also those that the server understands only when it has patched."""
    await kubectl("apply", "-f", "-", stdin=job())

    assert complaint in await kubectl.refused("patch", "job", "j", "--type=merge", "-p", patch)


async def test_a_list_is_applied_item_by_item(kubectl: Kubectl) -> None:
    """kind: List, in JSON or YAML, as `kubectl get -o yaml` prints it."""
    names = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in ("a", "b")]

    made = await kubectl("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": names})
    printed = await kubectl("get", "cm", "a", "b", "-o", "yaml")
    again = await kubectl("apply", "-f", "-", stdin=printed)

    assert made == "configmap/a created\nconfigmap/b created\n"
    assert again == "configmap/a configured\nconfigmap/b configured\n"
    assert "unknown field" in await kubectl.refused(
        "apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": [{**names[0], "dat": {}}]}
    )


async def test_a_custom_kind_from_definition_to_deletion(kubectl: Kubectl) -> None:
    """Columns, short names, explanations, defaults, validation, describe, wait, deletion."""
    group = f"{kubectl.namespace}.example.com"
    crd = definition(
        additionalPrinterColumns=[
            {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
            {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        ]
    )
    crd |= {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    crd["metadata"]["name"], crd["spec"]["group"] = f"things.{group}", group
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {**schema, "description": "A thing."}
    thing = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"n": 3}}
    plural = f"things.{group}"
    try:
        await kubectl("apply", "-f", "-", stdin=crd)
        await kubectl("wait", "--for=condition=Established", f"crd/{plural}", "--timeout=30s")
        await kubectl("apply", "-f", "-", stdin=thing)
        await kubectl("apply", "-f", "-", stdin={**thing, "spec": {"n": 4}})
        ready = '{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}'
        await kubectl("patch", plural, "t", "--type=merge", "--subresource=status", "-p", ready)
        await kubectl("wait", "--for=condition=Ready", f"{plural}/t", "--timeout=10s")

        assert [line.split() for line in (await kubectl("get", plural)).splitlines()] == [
            ["NAME", "COLOR", "READY"],
            ["t", "red", "True"],
        ]
        assert "Color:  red" in await kubectl("describe", plural, "t")
        complaint = await kubectl.refused("apply", "-f", "-", stdin={**thing, "spec": {"n": 9}})
        assert "should be less than or equal to 5" in complaint
        assert "th " in await kubectl("api-resources", f"--api-group={group}")
        assert "A thing." in await kubectl("explain", plural)
    finally:
        await kubectl("delete", "crd", plural, "--ignore-not-found", "--wait=true")
    assert "the server doesn't have a resource type" in await kubectl.refused("get", plural)


async def test_deletion_waits_and_cascades(kubectl: Kubectl) -> None:
    """Finalizers hold; dependents go, or stay as orphans."""

    async def child(name: str, owner: str) -> None:
        uid = await kubectl.path("{.metadata.uid}", "cm", owner)
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": True}
        await kubectl("apply", "-f", "-", stdin={
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [reference]},
        })  # fmt: skip

    for owner in ("one", "two"):
        await kubectl("create", "configmap", owner)
        await child(f"child-of-{owner}", owner)
    await kubectl("delete", "cm", "one", "--cascade=foreground", "--timeout=30s")
    await kubectl("delete", "cm", "two", "--cascade=orphan", "--timeout=30s")

    names = (await kubectl("get", "cm", "-o", "name")).split()
    assert "configmap/child-of-one" not in names
    assert "configmap/child-of-two" in names
    assert not await kubectl.path("{.metadata.ownerReferences}", "cm", "child-of-two")


async def test_a_namespace_is_emptied(kubectl: Kubectl) -> None:
    """kubectl waits until it is gone, and so are its objects."""
    name = f"{kubectl.namespace}-short-lived"
    await kubectl("create", "namespace", name)
    await kubectl("create", "configmap", "c", "-n", name)

    await kubectl("delete", "namespace", name, "--timeout=60s")

    assert "not found" in await kubectl.refused("get", "namespace", name)


async def test_a_watch_shows_changes(kubectl: Kubectl) -> None:
    """get -w prints the row again when the object changes."""
    await kubectl("create", "configmap", "c")
    version = await kubectl.path("{.metadata.resourceVersion}", "cm", "c")
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps"
    watching = asyncio.create_task(
        kubectl("get", "--raw", f"{path}?watch=true&resourceVersion={version}&timeoutSeconds=1")
    )
    await kubectl("annotate", "cm", "c", "a=b")
    await kubectl("delete", "cm", "c")

    events = [json.loads(line) for line in (await watching).splitlines()]
    assert [event["type"] for event in events] == ["MODIFIED", "DELETED"]


async def test_fields_are_explained(kubectl: Kubectl) -> None:
    """Of built-in kinds at least their names and types."""
    explained = await kubectl("explain", "job.spec.template.spec.containers")

    for field in ("resources", "image", "livenessProbe"):
        assert field in explained
    assert "batch/v1" in await kubectl("api-versions")


# --- what only the sandbox can show here


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Kubectl]:
    """A sandbox of its own with four nodes, whose pods run at once."""
    from kqueue.sandbox.topology_spec import parse_topology

    sandbox = Sandbox(SandboxOptions(topology=parse_topology("1x2x2")))
    await sandbox.start()
    path = tmp_path / "kubeconfig"
    sandbox.write_kubeconfig(path)

    class Only:
        kubeconfig = path
        cluster = Cluster(path)

    yield Kubectl(Only(), "default")
    await sandbox.stop()


async def test_nodes_are_described_and_drained(sandbox: Kubectl) -> None:
    """Describe shows what runs on a node, taints and cordons show, and draining evicts."""
    node = (await sandbox("get", "nodes", "-o", "name")).split()[0].removeprefix("node/")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": node}}
    pod["spec"]["containers"] = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]  # type: ignore[index]
    await sandbox("apply", "-f", "-", stdin=pod)
    await sandbox("wait", "--for=condition=Ready", "pod/p", "--timeout=10s")

    described = await sandbox("describe", "node", node)
    logs = await sandbox.refused("logs", "p")
    await sandbox("taint", "node", node, "a=b:NoSchedule")
    await sandbox("drain", node, "--force", "--timeout=30s")

    assert "default                     p" in described
    assert "there are no logs" in logs
    assert "SchedulingDisabled" in await sandbox("get", "node", node)
    assert "a=b:NoSchedule" in await sandbox("describe", "node", node)
    assert "not found" in await sandbox.refused("get", "pod", "p")
    await sandbox("uncordon", node)


async def test_describe_shows_events(sandbox: Kubectl) -> None:
    """Events of events.k8s.io are found by their object."""
    await sandbox("apply", "-f", "-", stdin=job())
    uid = await sandbox.path("{.metadata.uid}", "job", "j")
    about = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "namespace": "default", "uid": uid}
    event = {
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "regarding": about,
        "reason": "Waiting", "note": "no room in any rack", "type": "Warning", "action": "Wait",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.com/x", "reportingInstance": "x-1",
    }  # fmt: skip
    await sandbox("create", "-f", "-", stdin=event)

    assert "no room in any rack" in await sandbox("describe", "job", "j")
    assert "job/j" in await sandbox("get", "events")


async def test_an_object_is_edited(sandbox: Kubectl, tmp_path: Path) -> None:
    """kubectl edit, with an editor that changes one number."""
    await sandbox("apply", "-f", "-", stdin=job())
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/parallelism: 2/parallelism: 7/' \"$1\"\n")
    editor.chmod(0o755)
    program = binaries.kubectl()
    assert program is not None
    kubectl = await asyncio.create_subprocess_exec(
        program, f"--kubeconfig={tmp_path / 'kubeconfig'}", "edit", "job", "j",
        stdout=asyncio.subprocess.PIPE, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "EDITOR": str(editor)},
    )  # fmt: skip
    out, _ = await kubectl.communicate()

    assert out == b"job.batch/j edited\n"
    assert await sandbox.path("{.spec.parallelism}", "job", "j") == "7"
