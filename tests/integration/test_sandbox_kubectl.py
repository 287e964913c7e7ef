"""The real kubectl against the sandbox, and against the real server to see that it says the same."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from kqueue.api.crd_files import crd_folder
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

    @asynccontextmanager
    async def started(self, *args: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """kubectl while it runs, for what it prints bit by bit; killed at the end if it still does."""
        program = binaries.kubectl()
        assert program is not None
        home = str(self._plane.kubeconfig.parent)
        process = await asyncio.create_subprocess_exec(
            program, f"--kubeconfig={self._plane.kubeconfig}", f"--cache-dir={home}/kubectl-cache", "-n", self.namespace,
            *args, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], "HOME": home, **environment},
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def edited(self, script: str, *target: str, folder: Path) -> str:
        """What `kubectl edit` prints when this shell script, whose $1 is the file, is the editor."""
        editor = folder / "editor"
        editor.write_text(f"#!/bin/sh\n{script}\n")
        editor.chmod(0o755)
        async with self.started("edit", *target, KUBE_EDITOR=str(editor)) as process:
            out, _ = await process.communicate()
        return out.decode()


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
    """get -w prints a row for every change, and what kind of change it was."""
    await kubectl("create", "configmap", "c")
    async with kubectl.started("get", "cm", "c", "-w", "--output-watch-events", "--no-headers") as process:
        assert process.stdout is not None
        rows = [(await process.stdout.readline()).split()[:2]]
        await kubectl("annotate", "cm", "c", "a=b")
        rows.append((await process.stdout.readline()).split()[:2])
        await kubectl("delete", "cm", "c")
        rows.append((await process.stdout.readline()).split()[:2])

    assert rows == [[b"ADDED", b"c"], [b"MODIFIED", b"c"], [b"DELETED", b"c"]]


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        pytest.param("name", "job.batch/j\n", id="name"),
        pytest.param("jsonpath={.spec.template.spec.containers[*].name}", "main", id="jsonpath"),
        pytest.param("jsonpath={.spec.nothing}", "", id="jsonpath to nothing"),
        pytest.param("custom-columns=N:.metadata.name,P:.spec.parallelism,X:.x", "N     P     X\nj     2     <none>\n", id="columns"),
        pytest.param("go-template={{.spec.suspend}}", "true", id="template"),
    ],
)  # fmt: skip
async def test_objects_are_printed_in_all_forms(kubectl: Kubectl, form: str, printed: str) -> None:
    """As asked for."""
    await kubectl("apply", "-f", "-", stdin=job())

    assert await kubectl("get", "job", "j", "-o", form) == printed


async def test_yaml_and_json_say_the_same_and_go_back_in(kubectl: Kubectl) -> None:
    """What is printed can be applied again."""
    await kubectl("create", "-f", "-", stdin=job())

    printed = await kubectl("get", "job", "j", "-o", "yaml")

    assert yaml.safe_load(printed) == json.loads(await kubectl("get", "job", "j", "-o", "json"))
    assert await kubectl("replace", "-f", "-", stdin=printed) == "job.batch/j replaced\n"


async def test_an_object_is_edited(kubectl: Kubectl, tmp_path: Path) -> None:
    """kubectl edit with an editor that changes a number, nothing, and something that cannot be changed."""
    await kubectl("apply", "-f", "-", stdin=job())

    changed = await kubectl.edited('sed -i "s/parallelism: 2/parallelism: 7/" "$1"', "job", "j", folder=tmp_path)
    same = await kubectl.edited("true", "job", "j", folder=tmp_path)
    refused = await kubectl.edited(
        f'sed -i "s/parallelism: 7/parallelism: -1/" "$1"; cat "$1" >> {tmp_path}/seen', "job", "j", folder=tmp_path
    )

    assert (changed, same) == ("job.batch/j edited\n", "Edit cancelled, no changes made.\n")
    assert await kubectl.path("{.spec.parallelism}", "job", "j") == "7"
    assert "Edit cancelled" in refused
    complaint = "# * spec.parallelism: Invalid value: -1: must be greater than or equal to 0"
    assert complaint in (tmp_path / "seen").read_text()


async def test_waiting_ends_when_it_is_so(kubectl: Kubectl) -> None:
    """For a condition, a value, the creation and the deletion; and it says so when it is not."""
    await kubectl("apply", "-f", "-", stdin=job())

    async def wait(what: str, *target: str, seconds: int = 30) -> str:
        return await kubectl("wait", f"--for={what}", *target, f"--timeout={seconds}s")

    assert await wait("condition=Suspended", "job/j") == "job.batch/j condition met\n"
    assert await wait("condition=suspended=true", "job/j") == "job.batch/j condition met\n"
    assert await wait("jsonpath={.spec.parallelism}=2", "job/j") == "job.batch/j condition met\n"
    coming = asyncio.create_task(wait("create", "cm/c"))
    await kubectl("create", "configmap", "c", "--from-literal=a=1")
    assert await coming == "configmap/c condition met\n"
    async with kubectl.started("wait", "--for=jsonpath={.data.a}=2", "cm/c", "--timeout=30s") as waiting:
        await kubectl("patch", "cm", "c", "-p", '{"data": {"a": "2"}}')
        assert (await waiting.communicate())[0] == b"configmap/c condition met\n"
    async with kubectl.started("wait", "--for=delete", "cm/c", "--timeout=30s") as waiting:
        await kubectl("delete", "cm", "c", "--wait=false")
        assert (await waiting.communicate())[0] in (b"configmap/c condition met\n", b"")
    with pytest.raises(KubectlError, match="timed out waiting for the condition on jobs/j"):
        await wait("condition=Complete", "job/j", seconds=1)


async def test_labels_and_annotations_are_set_and_taken_away(kubectl: Kubectl) -> None:
    """One that is there is not overwritten unawares."""
    await kubectl("create", "configmap", "c")
    for verb, done in (("label", "labeled"), ("annotate", "annotated")):
        assert await kubectl(verb, "cm", "c", "a=b") == f"configmap/c {done}\n"
        assert "--overwrite is false" in await kubectl.refused(verb, "cm", "c", "a=c")
        await kubectl(verb, "cm", "c", "a=c", "--overwrite")
    assert json.loads(await kubectl.path("{.metadata.labels}", "cm", "c")) == {"a": "c"}
    await kubectl("label", "cm", "c", "a-")
    await kubectl("annotate", "cm", "c", "a-")

    assert await kubectl.path("{.metadata.labels}{.metadata.annotations}", "cm", "c") == ""
    assert "invalid label value" in await kubectl.refused("label", "cm", "c", "a=b c")
    assert 'metadata.annotations: Invalid value: "a b": name part must consist of' in await kubectl.refused(
        "annotate", "cm", "c", "a b=c"
    )


async def test_replicas_are_scaled(kubectl: Kubectl) -> None:
    """Of kinds that have some, under a condition too; others say that they have none."""
    await kubectl("create", "deployment", "d", "--image=i", "--replicas=0")
    await kubectl("apply", "-f", "-", stdin=job())

    assert await kubectl("scale", "deployment", "d", "--replicas=3") == "deployment.apps/d scaled\n"
    assert await kubectl("scale", "deploy/d", "--current-replicas=3", "--replicas=2") == "deployment.apps/d scaled\n"
    assert "Expected replicas to be 3, was 2" in await kubectl.refused(
        "scale", "deploy/d", "--current-replicas=3", "--replicas=4"
    )
    scale = json.loads(await kubectl("get", "deploy", "d", "--subresource=scale", "-o", "json"))
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 2}, "app=d")
    patch = ("patch", "deploy", "d", "--subresource=scale", "--type=merge", "-p")
    complaint = await kubectl.refused(*patch, '{"spec": {"replicas": -1}}')
    assert 'The Scale "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0' in complaint
    assert "The request is invalid: patch: Invalid value" in await kubectl.refused(
        *patch, '{"spec": {"replicas": "a"}}'
    )
    assert await kubectl(*patch, '{"spec": {"replicas": 5}}') == "scale.autoscaling/d patched\n"
    assert await kubectl.path("{.spec.replicas}", "deploy", "d") == "5"
    assert "could not find the requested resource" in await kubectl.refused("scale", "job", "j", "--replicas=3")


async def test_custom_kinds_are_scaled(kubectl: Kubectl) -> None:
    """Where their definition says that their numbers are."""
    group = f"{kubectl.namespace}.example.com"
    scaled = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.s"}
    numbers = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": numbers, "status": numbers}}
    crd = definition(schema=schema, subresources={"status": {}, "scale": scaled})
    crd |= {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    crd["metadata"]["name"], crd["spec"]["group"] = f"things.{group}", group
    thing = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"n": 3}}
    plural = f"things.{group}"
    try:
        await kubectl("apply", "-f", "-", stdin=crd)
        await kubectl("wait", "--for=condition=Established", f"crd/{plural}", "--timeout=30s")
        await kubectl("apply", "-f", "-", stdin=thing)
        status = '{"status": {"n": 2, "s": "a=b"}}'
        await kubectl("patch", plural, "t", "--type=merge", "--subresource=status", "-p", status)
        await kubectl("scale", f"{plural}/t", "--replicas=4")

        found = json.loads(await kubectl("get", plural, "t", "--subresource=scale", "-o", "json"))
        assert (found["spec"], found["status"]) == ({"replicas": 4}, {"replicas": 2, "selector": "a=b"})
        assert await kubectl.path("{.spec.n} {.metadata.generation}", plural, "t") == "4 2"
    finally:
        await kubectl("delete", "crd", plural, "--ignore-not-found", "--wait=true")


async def test_apply_moves_from_kubectl_to_the_server(kubectl: Kubectl) -> None:
    """What kubectl applied by itself it may change by way of the server, others may not; and back again."""

    def parallelism(number: int) -> dict[str, Any]:
        return job(parallelism=number)

    await kubectl("apply", "-f", "-", stdin=parallelism(2))
    assert 'conflict with "kubectl-client-side-apply" using batch/v1: .spec.parallelism' in await kubectl.refused(
        "apply", "--server-side", "--field-manager=other", "-f", "-", stdin=parallelism(3)
    )
    moved = await kubectl("apply", "--server-side", "-f", "-", stdin=parallelism(4))
    again = await kubectl("apply", "--server-side", "-f", "-", stdin=parallelism(5))
    back = await kubectl("apply", "-f", "-", stdin=parallelism(6))
    await kubectl("patch", "job", "j", "--type=merge", "-p", '{"spec": {"parallelism": 7}}')

    assert [moved, again, back] == ["job.batch/j serverside-applied\n"] * 2 + ["job.batch/j configured\n"]
    assert await kubectl.path("{.spec.template.metadata.labels['job-name']}", "job", "j") == "j"
    assert 'conflict with "kubectl-patch" using batch/v1: .spec.parallelism' in await kubectl.refused(
        "apply", "--server-side", "-f", "-", stdin=parallelism(8)
    )


async def test_deletion_waits_for_finalizers_or_does_not(kubectl: Kubectl) -> None:
    """kubectl returns when the object is gone, at once with --wait=false, and says when time is up."""
    held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "finalizers": ["example.com/hold"]}}
    await kubectl("create", "-f", "-", stdin=held)

    assert "deleted" in await kubectl("delete", "cm", "c", "--wait=false", "--cascade=background")
    assert "timed out waiting" in await kubectl.refused("delete", "cm", "c", "--timeout=1s")
    async with kubectl.started("delete", "cm", "c", "--timeout=30s") as waiting:
        assert await kubectl.path("{.metadata.deletionTimestamp}", "cm", "c") != ""
        await kubectl("patch", "cm", "c", "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
        await waiting.communicate()
    assert "not found" in await kubectl.refused("get", "cm", "c")
    assert await kubectl("delete", "cm", "c", "--ignore-not-found") == ""


async def test_objects_are_described(kubectl: Kubectl) -> None:
    """Built-in kinds and custom ones, by field."""
    await kubectl("apply", "-f", "-", stdin=job())
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "q"}}
    await kubectl("apply", "-f", "-", stdin={**queue, "spec": {"clusterQueue": "all"}})

    described = {" ".join(line.split()) for line in (await kubectl("describe", "job", "j")).splitlines()}
    queue_described = await kubectl("describe", "localqueue", "q")

    assert {"Name: j", "Parallelism: 2", "Labels: team=a", "ONE: 1", "Image: img:v1", "Suspend: true"} <= described
    assert "Cluster Queue:  all" in queue_described


async def test_nodes_are_tainted_and_cordoned(kubectl: Kubectl) -> None:
    """As an administrator would, with the mistakes that one makes."""
    [node] = await kubectl.cluster.add_nodes((1, 1, 1), prefix="kubectl")
    await kubectl.cluster.until(f"/api/v1/nodes/{node}", lambda _: True, what="the node")

    assert await kubectl("taint", "node", node, "a=b:NoSchedule") == f"node/{node} tainted\n"
    assert "already has a taint" in await kubectl.refused("taint", "node", node, "a=c:NoSchedule")
    await kubectl("taint", "node", node, "a=c:NoSchedule", "--overwrite")
    assert "a=c:NoSchedule" in await kubectl("describe", "node", node)
    assert await kubectl("taint", "node", node, "a-") == f"node/{node} untainted\n"
    assert "not found" in await kubectl.refused("taint", "node", node, "a-")
    assert await kubectl("cordon", node) == f"node/{node} cordoned\n"
    assert "SchedulingDisabled" in await kubectl("get", "node", node)
    assert await kubectl("uncordon", node) == f"node/{node} uncordoned\n"
    assert await kubectl.path("{.spec.unschedulable}", "node", node) == ""


async def test_the_cluster_tells_of_itself(kubectl: Kubectl) -> None:
    """Address, versions, kinds, and who one is."""
    assert f"Kubernetes control plane is running at {kubectl.cluster.url}" in await kubectl("cluster-info")
    assert "Server Version: v1.36.3" in await kubectl("version")
    versions = (await kubectl("api-versions")).split()
    assert {"v1", "batch/v1", "kueue.x-k8s.io/v1beta2", "apiextensions.k8s.io/v1"} <= set(versions)
    kinds = {line.split()[0] for line in (await kubectl("api-resources", "--no-headers")).splitlines()}
    assert {"pods", "jobs", "nodes", "leases", "workloads", "clusterqueues"} <= kinds
    batch = await kubectl("api-resources", "--api-group=batch", "--no-headers", "-o", "wide")
    assert [line.split() for line in batch.splitlines()][1] == [
        "jobs", "batch/v1", "true", "Job", "create,delete,deletecollection,get,list,patch,update,watch", "all",
    ]  # fmt: skip
    assert await kubectl("auth", "can-i", "delete", "nodes") == "yes\n"
    assert "system:masters" in await kubectl("auth", "whoami")


async def test_fields_are_explained(kubectl: Kubectl) -> None:
    """Of built-in kinds at least their names and types."""
    explained = await kubectl("explain", "job.spec.template.spec.containers")

    for field in ("resources", "image", "livenessProbe"):
        assert field in explained
    queue = await kubectl("explain", "localqueue.spec.clusterQueue")
    assert "FIELD: clusterQueue <string>" in queue
    assert "DESCRIPTION" in queue
    assert 'field "nope" does not exist' in await kubectl.refused("explain", "job.spec.nope")
    assert "the server doesn't have a resource type" in await kubectl.refused("explain", "nope")


# --- what only the sandbox can show here


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Kubectl]:
    """A sandbox of its own with four nodes, whose pods run at once."""
    from kqueue.sandbox.topology_spec import parse_topology

    sandbox = Sandbox(SandboxOptions(topology=parse_topology("1x2x2"), crds=(crd_folder(),)))
    await sandbox.start()
    path = tmp_path / "kubeconfig"
    sandbox.write_kubeconfig(path)

    class Only:
        kubeconfig = path
        cluster = Cluster(path)

    yield Kubectl(Only(), "default")
    await sandbox.stop()


async def test_measured_use_is_shown(sandbox: Kubectl) -> None:
    """`kubectl top` shows what the annotation of a pod says, on the pod and on its node."""
    node = (await sandbox("get", "nodes", "-o", "name")).split()[0].removeprefix("node/")
    use = {"sandbox.kqueue.dev/use": "cpu=250m,memory=64Mi"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": use}}
    pod["spec"] = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
    await sandbox("apply", "-f", "-", stdin=pod)
    await sandbox("wait", "--for=condition=Ready", "pod/p", "--timeout=10s")

    nodes = [line.split() for line in (await sandbox("top", "nodes", "--no-headers")).splitlines()]
    pods = [line.split() for line in (await sandbox("top", "pods", "--no-headers")).splitlines()]

    assert {name: (cpu, memory) for name, cpu, _, memory, _ in nodes}[node] == ("250m", "64Mi")
    assert len(nodes) == 4
    assert pods == [["p", "250m", "64Mi"]]


async def test_nodes_are_described_and_drained(sandbox: Kubectl) -> None:
    """Describe shows what runs on a node, taints and cordons show, and draining evicts."""
    node = (await sandbox("get", "nodes", "-o", "name")).split()[0].removeprefix("node/")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": node}}
    pod["spec"]["containers"] = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]  # type: ignore[index]
    await sandbox("apply", "-f", "-", stdin=pod)
    await sandbox("wait", "--for=condition=Ready", "pod/p", "--timeout=10s")

    described = await sandbox("describe", "node", node)
    logs, inside = await sandbox.refused("logs", "p"), await sandbox.refused("exec", "p", "--", "ls")
    await sandbox("taint", "node", node, "a=b:NoSchedule")
    await sandbox("drain", node, "--force", "--timeout=30s")

    assert "default                     p" in described
    assert "there are no logs" in logs
    assert "there is nothing to execute in" in inside
    assert "SchedulingDisabled" in await sandbox("get", "node", node)
    assert "a=b:NoSchedule" in await sandbox("describe", "node", node)
    assert "not found" in await sandbox.refused("get", "pod", "p")
    await sandbox("uncordon", node)


async def test_a_rollout_is_waited_for(sandbox: Kubectl) -> None:
    """Of a DaemonSet, until there is a ready pod on each of the four nodes."""
    labels = {"app": "agent"}
    containers = [{"name": "c", "image": "i"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    agent = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}}
    await sandbox(
        "apply", "-f", "-", stdin={**agent, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    )

    told = await sandbox("rollout", "status", "daemonset", "agent", "--timeout=30s")

    assert 'daemon set "agent" successfully rolled out' in told
    assert await sandbox.path("{.status.numberReady}", "daemonset", "agent") == "4"


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
