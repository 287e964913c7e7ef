"""Calls of the verbs: names of kinds, flags that do not go together, what is handed to kubectl."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from kqueue import __main__
from kqueue.cli import app
from kqueue.cli.ctl import objects
from kqueue.cli.ctl.discovery import parse_target
from kqueue.cli.ctl.kinds import OURS, kind_called, unknown_kind
from kqueue.cli.ctl.kubectl_commands import with_full_kinds
from kqueue.errors import ConfigError

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: one, context: {cluster: c, user: u, namespace: team}}]
"""


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster at which nobody answers."""
    (tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(pytest.param(name, "workload", id=name)
          for name in ("workload", "workloads", "kwl", "kueueworkload", "kueueworkloads", "WORKLOAD")),
        *(pytest.param(name, "clusterqueue", id=name) for name in ("cq", "clusterqueues", "ClusterQueue")),
        *(pytest.param(name, "localqueue", id=name) for name in ("lq", "localqueues.kueue.x-k8s.io")),
        *(pytest.param(name, "resourceflavor", id=name) for name in ("rf", "resourceflavors")),
        pytest.param("pod", None, id="not-one-of-ours"),
    ],
)  # fmt: skip
def test_kinds_have_several_names(name: str, kind: str | None) -> None:
    """In whatever case."""
    found = kind_called(name)
    assert (found and found.name) == kind


def test_no_name_means_two_kinds() -> None:
    """Aliases do not overlap."""
    names = [name for kind in OURS for name in kind.names]
    assert len(names) == len(set(names))


def test_an_unknown_kind_names_the_nearest() -> None:
    """And all that are known."""
    text = unknown_kind("clusterque")
    assert "did you mean clusterqueue?" in text
    assert "localqueue (lq)" in text
    assert "did you mean" not in unknown_kind("zzz")


@pytest.mark.parametrize(
    ("called", "shown"),
    [
        pytest.param("/usr/bin/kubectl-kqueue", "kubectl kqueue", id="as-a-plugin-of-kubectl"),
        pytest.param("/usr/bin/kubectl-kueue", "kubectl kueue", id="under-the-name-that-people-know"),
        pytest.param("/usr/bin/kqueue", "kqueue", id="by-its-own-name"),
        pytest.param("/x/kqueue/__main__.py", "kqueue", id="as-a-module"),
    ],
)
def test_the_usage_line_names_what_was_called(
    called: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that it can be copied."""
    monkeypatch.setattr("sys.argv", [called, "list", "cq", "--help"])
    with pytest.raises(SystemExit):
        __main__.main()
    assert f"Usage: {shown} list clusterqueue " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param("list nope", "there is no kind 'nope'", id="unknown-kind"),
        pytest.param("list cohort", "Known are workload", id="a-kind-that-this-verb-does-not-know"),
        pytest.param("list cq --active true --active false", "--active may be given only once", id="active-twice"),
        pytest.param("list pods", "--for", id="pods-of-what"),
        pytest.param("list pods --for job", "TYPE/NAME", id="for-without-name"),
        pytest.param("list kwl --status odd", "odd", id="unknown-status"),
        pytest.param("create lq a", "--clusterqueue", id="localqueue-without-clusterqueue"),
        pytest.param(
            "create cq a --borrowing-limit f:cpu=1", "--borrowing-limit needs --cohort", id="nobody-to-borrow-from"
        ),
        pytest.param("create cq a --nominal-quota f", "--nominal-quota 'f'", id="bad-quota"),
        pytest.param("create rf a --node-taints x", "--node-taints 'x'", id="bad-taint"),
        pytest.param("create rf a --dry-run maybe", "maybe", id="unknown-dry-run"),
        pytest.param("stop cq a/b", "'a/b' is no name", id="name-with-a-slash"),
        pytest.param("stop kwl ..", "'..' is no name", id="name-that-leads-elsewhere"),
        pytest.param("stop kwl a -n ../x", "no name of a namespace", id="namespace-that-leads-elsewhere"),
        pytest.param("delete kwl", "or --all", id="delete-what"),
        pytest.param("delete kwl -A", "--all with -A", id="delete-where"),
        pytest.param("delete kwl a --all", "either names", id="names-and-all"),
        pytest.param("delete kwl a -A", "either names", id="names-and-all-namespaces"),
        pytest.param("get", "KIND", id="get-what"),
        pytest.param("get pods", "no kind 'pods'", id="get-a-kind-that-is-not-ours"),
        pytest.param("get -o yaml", "", id="get-without-kind"),
        pytest.param("completion powershell", "powershell", id="unknown-shell"),
    ],
)
def test_a_wrong_call_names_the_flag(arguments: str, want: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, before anything is asked of the cluster."""
    assert app.run(arguments.split()) == 2
    out, err = capsys.readouterr()
    assert want in out + err
    assert "no answer from" not in err


def test_a_cluster_that_does_not_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1."""
    assert app.run(["list", "cq", "--request-timeout", "100ms"]) == 1
    assert "no answer from http://127.0.0.1:1" in capsys.readouterr().err


def test_a_queue_is_shown_before_it_is_created(capsys: pytest.CaptureFixture[str]) -> None:
    """Without flags: best effort, no preemption, all namespaces; nothing is asked of the cluster."""
    assert app.run(["create", "cq", "a", "--dry-run", "client", "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "a"},
        "spec": {
            "queueingStrategy": "BestEffortFIFO",
            "namespaceSelector": {},
            "preemption": {"reclaimWithinCohort": "Never", "withinClusterQueue": "Never"},
        },
    }


def test_flags_become_fields(capsys: pytest.CaptureFixture[str]) -> None:
    """Each of them, and flags of the cluster may stand before the verb and before the kind."""
    flags = "--cohort c --queuing-strategy strictfifo --namespace-selector t=x --reclaim-within-cohort Any"
    more = "--preemption-within-cluster-queue LowerPriority --nominal-quota f:cpu=2 --lending-limit f:cpu=1"
    run(f"-n x create -n y cq a {flags} {more} --dry-run client -o yaml")
    assert yaml.safe_load(capsys.readouterr().out)["spec"] == {
        "cohortName": "c",
        "queueingStrategy": "StrictFIFO",
        "namespaceSelector": {"matchLabels": {"t": "x"}},
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2", "lendingLimit": "1"}]}],
            }
        ],
    }


def test_a_local_queue_is_made_where_the_context_works(capsys: pytest.CaptureFixture[str]) -> None:
    """Or where -n says."""
    run("create lq a -c cq -i --dry-run client -o yaml")
    run("create lq a -c cq -i --dry-run client -o yaml -n other")
    namespaces = [yaml.safe_load(part)["metadata"]["namespace"] for part in capsys.readouterr().out.split("apiVersion")[1:]
                  for part in [f"apiVersion{part}"]]  # fmt: skip
    assert namespaces == ["team", "other"]


@pytest.mark.parametrize(
    ("output", "want"),
    [
        pytest.param("text", "resourceflavor.kueue.x-k8s.io/a created (client dry run)\n", id="a-sentence"),
        pytest.param("name", "resourceflavor.kueue.x-k8s.io/a\n", id="the-name"),
    ],
)
def test_what_was_done_is_told(output: str, want: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the full name, and whether it was only tried."""
    run(f"create rf a --dry-run client -o {output}")
    assert capsys.readouterr().out == want


def run(arguments: str) -> None:
    """One call that must succeed."""
    assert app.run(arguments.split()) == 0


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param("cq", "clusterqueues.kueue.x-k8s.io", id="a-kind"),
        pytest.param("cq,lq -A", "clusterqueues.kueue.x-k8s.io,localqueues.kueue.x-k8s.io -A", id="several-kinds"),
        pytest.param("wl/a -o yaml", "workloads.kueue.x-k8s.io/a -o yaml", id="kind-and-name"),
        pytest.param("-n cq wl lq", "-n cq workloads.kueue.x-k8s.io lq", id="values-and-names-may-look-like-kinds"),
        pytest.param("--odd x wl", "--odd x workloads.kueue.x-k8s.io", id="flags-that-we-do-not-know"),
        pytest.param("-o yaml lq a", "-o yaml localqueues.kueue.x-k8s.io a", id="flags-before-the-kind"),
    ],
)
def test_kubectl_gets_the_full_name_of_the_kind(arguments: str, want: str) -> None:
    """All the rest is unchanged."""
    assert with_full_kinds(arguments.split()) == want.split()


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param("get -n team cq a -o wide", "get -n team clusterqueues.kueue.x-k8s.io a -o wide", id="get"),
        pytest.param("describe lq a", "describe localqueues.kueue.x-k8s.io a", id="describe"),
        pytest.param("edit rf a", "edit resourceflavors.kueue.x-k8s.io a", id="edit"),
        pytest.param("patch kwl a -p {}", "patch workloads.kueue.x-k8s.io a -p {}", id="patch"),
        pytest.param("delete cq a --wait=false", "delete clusterqueues.kueue.x-k8s.io a --wait=false", id="delete"),
        pytest.param("delete topo a -h", "delete topologies.kueue.x-k8s.io a -h", id="help-of-kubectl"),
    ],
)
def test_kubectl_does_the_rest(arguments: str, want: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process becomes kubectl."""
    became: list[Any] = []
    (tmp_path / "kubectl").write_text("")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "execv", lambda *call: became.append(call))
    app.run(arguments.split())
    assert became == [(str(tmp_path / "kubectl"), ["kubectl", *want.split()])]


def test_without_kubectl_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what works without it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert app.run(["describe", "cq", "a"]) == 2
    assert "kubectl is not on PATH" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_the_shell_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the program and its variable."""
    run(f"completion {shell}")
    out = capsys.readouterr().out
    assert "kqueue" in out
    assert "_KQUEUE_COMPLETE" in out


@pytest.mark.parametrize(
    ("words", "want"),
    [
        pytest.param(["sto"], "stop\n:4\n", id="a-verb"),
        pytest.param(["list", ""], "clusterqueue\nlocalqueue\nworkload\nresourceflavor\npods\ngangs\n:4\n", id="kinds"),
        pytest.param(["list", "kwl", "--sta"], "--status\n:4\n", id="a-flag-behind-an-alias"),
        pytest.param(["stop", "cq", ""], ":4\n", id="names-in-a-cluster-that-does-not-answer"),
        pytest.param([], None, id="nothing-written-yet"),
    ],
)
def test_kubectl_is_told_what_a_word_may_become(
    words: list[str], want: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One a line, and in the end what kubectl is to do with them."""
    for variable in ("_KQUEUE_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
        monkeypatch.setenv(variable, "")  # so that it is put back afterwards
    monkeypatch.setattr("sys.argv", ["kubectl_complete-kqueue", *words])
    __main__.complete()
    out = capsys.readouterr().out
    assert "create\n" in out if want is None else out == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", 100, id="not-said"),
        pytest.param("7", 7, id="a-number"),
        *(pytest.param(text, None, id=name)
          for text, name in (("0", "zero"), ("-1", "negative"), ("x", "no-number"), ("9999999999", "too-many"))),
    ],
)  # fmt: skip
def test_the_size_of_a_page_comes_from_the_environment(
    text: str, want: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What makes no sense is refused with the variable's name."""
    monkeypatch.setenv("KUEUECTL_LIST_REQUEST_LIMIT", text)
    if want is None:
        with pytest.raises(ConfigError, match="KUEUECTL_LIST_REQUEST_LIMIT"):
            objects.page_size()
    else:
        assert objects.page_size() == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("job/a", ("job", None, "a"), id="type-and-name"),
        pytest.param("Job.batch/a", ("job", "batch", "a"), id="with-group"),
        pytest.param("jobset.jobset.x-k8s.io/a", ("jobset", "jobset.x-k8s.io", "a"), id="group-with-dots"),
        *(pytest.param(text, None, id=name) for text, name in (
            ("job", "no-name"), ("/a", "no-type"), ("job/", "empty-name"), ("job./a", "empty-group"), ("a/b/c", "too-much"))),
    ],
)  # fmt: skip
def test_for_names_an_object(text: str, want: tuple[str, str | None, str] | None) -> None:
    """`TYPE[.GROUP]/NAME`, and nothing else."""
    if want is None:
        with pytest.raises(ConfigError, match="--for"):
            parse_target(text)
    else:
        found = parse_target(text)
        assert (found.called, found.group, found.name) == want
