"""A refusal names the commands with which an administrator grants the missing right."""

from __future__ import annotations

import pytest

from kqueue.errors import ForbiddenError, NotFoundError
from kqueue.operations.grants import NODE_LABELS, SUMMARIES, RequiredGrant, needs, quotas_in, workloads_in


def refused(user: str) -> ForbiddenError:
    text = f'queuesummaries.visibility.kqueue.dev is forbidden: User "{user}" cannot list resource "queuesummaries"'
    return ForbiddenError(text, status=403, reason="Forbidden")


@pytest.mark.parametrize(
    ("user", "name", "subject"),
    [
        pytest.param("ann", "kqueue-summaries-viewer-ann", "--user=ann", id="a plain user"),
        pytest.param("Ann@x.y", "kqueue-summaries-viewer-ann-x.y", "--user=Ann@x.y", id="a mail address"),
        pytest.param(
            "a b;ls", "kqueue-summaries-viewer-a-b-ls", "'--user=a b;ls'", id="a name that a shell would read"
        ),
        pytest.param(
            "system:serviceaccount:ns:bot",
            "kqueue-summaries-viewer-system-serviceaccount-ns-bot",
            "--serviceaccount=ns:bot",
            id="a service account",
        ),
    ],
)
def test_a_refusal_names_the_command_for_its_user(user: str, name: str, subject: str) -> None:
    with pytest.raises(ForbiddenError) as told, needs(SUMMARIES, "a hint"):
        raise refused(user)
    assert str(told.value).splitlines() == [
        str(refused(user)),
        "Ask an administrator for the ClusterRole kqueue-summaries-viewer-role in the cluster:",
        f"  kubectl create clusterrolebinding {name} --clusterrole=kqueue-summaries-viewer-role {subject}",
        "Where the chart did not install this role, first:",
        "  kubectl create clusterrole kqueue-summaries-viewer-role --verb=get,list"
        " --resource=queuesummaries.visibility.kqueue.dev,topologysummaries.visibility.kqueue.dev"
        ",topologymaps.visibility.kqueue.dev",
        "a hint",
    ]
    assert (told.value.status, told.value.reason) == (403, "Forbidden")


def test_a_refusal_without_a_user_leaves_a_placeholder() -> None:
    with pytest.raises(ForbiddenError, match="--user=YOUR_USER"), needs(SUMMARIES):
        raise ForbiddenError("no", status=403)


def test_other_failures_stay_as_they_are() -> None:
    with pytest.raises(NotFoundError, match=r"^gone$"), needs(SUMMARIES):
        raise NotFoundError("gone", status=404)


@pytest.mark.parametrize(
    ("grant", "commands"),
    [
        pytest.param(
            quotas_in("team-a"),
            [
                "kubectl create clusterrole kqueue-quotas-viewer-role --verb=list"
                " --resource=queuequotas.visibility.kqueue.dev",
                "kubectl create rolebinding kqueue-quotas-viewer-ann -n team-a"
                " --clusterrole=kqueue-quotas-viewer-role --user=ann",
            ],
            id="quota is granted in the namespace alone",
        ),
        pytest.param(
            workloads_in("team-a"),
            [
                "kubectl create clusterrole kueue-workload-viewer-role --verb=get,list,watch"
                " --resource=workloads.kueue.x-k8s.io",
                "kubectl create rolebinding kueue-workload-viewer-ann -n team-a"
                " --clusterrole=kueue-workload-viewer-role --user=ann",
            ],
            id="workloads are granted in the namespace alone",
        ),
    ],
)
def test_rights_of_a_namespace_are_bound_there(grant: RequiredGrant, commands: list[str]) -> None:
    assert grant.commands("ann") == commands


def test_a_role_that_the_chart_lacks_is_created_first() -> None:
    lines = NODE_LABELS.words("ann").splitlines()
    assert [line.split()[2:4] for line in lines[1:]] == [
        ["clusterrole", "kqueue-node-labels-viewer-role"],
        ["clusterrolebinding", "kqueue-node-labels-viewer-ann"],
    ]
