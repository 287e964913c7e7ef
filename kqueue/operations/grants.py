"""The kubectl commands with which an administrator grants a user exactly one missing right."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kqueue.api import names
from kqueue.errors import ForbiddenError

_USER = re.compile(r'User "([^"]+)" cannot ')
"""The wording of refusals by the API server and by the visibility server."""
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9.-]+")
_ACCOUNT = "system:serviceaccount:"
_UNKNOWN = "YOUR_USER"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredGrant:
    """A ClusterRole and the rights that it grants."""

    role: str
    verbs: tuple[str, ...]
    resources: tuple[str, ...]
    """In kubectl's form: plural.group."""
    namespace: str = ""
    """The namespace of the binding; empty for the whole cluster."""
    in_chart: bool = True
    """Whether the chart installs the role."""

    def commands(self, user: str = "") -> list[str]:
        """Return the commands for an administrator: create the role, and bind it to the user (empty: a placeholder)."""
        return [self._create(), self._bind(user or _UNKNOWN)]

    def words(self, user: str = "") -> str:
        """Return a sentence and then the commands, one line each."""
        create, bind = self.commands(user)
        where = f"in namespace {self.namespace}" if self.namespace else "in the cluster"
        head = f"Ask an administrator for the ClusterRole {self.role} {where}:"
        tail = f"Where the chart did not install this role, first:\n  {create}" if self.in_chart else ""
        return "\n".join([head, f"  {bind}", tail] if tail else [head, f"  {create}", f"  {bind}"])

    def _create(self) -> str:
        return shlex.join(
            [
                *("kubectl", "create", "clusterrole", self.role),
                f"--verb={','.join(self.verbs)}",
                f"--resource={','.join(self.resources)}",
            ]
        )

    def _bind(self, user: str) -> str:
        name = f"{self.role.removesuffix('-role')}-{_NOT_IN_A_NAME.sub('-', user.lower()).strip('-.')}"[:253]
        kind = ["rolebinding", name, "-n", self.namespace] if self.namespace else ["clusterrolebinding", name]
        account = user.removeprefix(_ACCOUNT)
        subject = f"--user={user}" if account == user else f"--serviceaccount={account}"
        return shlex.join(["kubectl", "create", *kind, f"--clusterrole={self.role}", subject])


def _ours(*resources: str) -> tuple[str, ...]:
    return tuple(f"{resource}.{names.KQUEUE_VISIBILITY_GROUP}" for resource in resources)


SUMMARIES = RequiredGrant(
    role="kqueue-summaries-viewer-role",
    verbs=("get", "list"),
    resources=_ours("queuesummaries", "topologysummaries", "topologymaps"),
)
"""For `kqueue top`, `kqueue topology` and `kqueue dashboard`."""
START_TIMES = RequiredGrant(role="kqueue-starttimes-viewer-role", verbs=("list",), resources=_ours("starttimes"))
"""For the start times of all namespaces."""
WHAT_IFS = RequiredGrant(role="kqueue-whatifs-role", verbs=("create",), resources=_ours("whatifs"))
"""For questions of `kqueue dashboard` about changes."""
DECISION_RECORD = RequiredGrant(
    role="kqueue-decision-record-reader-role", verbs=("get", "list"), resources=_ours("decisionrecordfiles")
)
"""For `kqueue record fetch`."""
NODE_LABELS = RequiredGrant(
    role="kqueue-node-labels-viewer-role",
    verbs=("get", "list"),
    resources=("nodes", f"topologies.{names.GROUP}", f"resourceflavors.{names.GROUP}"),
    in_chart=False,
)
"""For `kqueue topology labels` and `kqueue topology detect`."""
DEFRAG = RequiredGrant(
    role="kqueue-defrag-planner-role",
    verbs=("list",),
    resources=(
        *("nodes", "pods", "limitranges", "runtimeclasses.node.k8s.io", "poddisruptionbudgets.policy"),
        *(f"{plural}.{names.GROUP}" for plural in ("topologies", "resourceflavors", "cohorts", "clusterqueues")),
        *(f"{plural}.{names.GROUP}" for plural in ("localqueues", "admissionchecks", "workloads")),
    ),
    in_chart=False,
)
"""For `kqueue defrag plan`."""
DEVICES = RequiredGrant(
    role="kqueue-devices-viewer-role",
    verbs=("list",),
    resources=tuple(
        f"{plural}.resource.k8s.io"
        for plural in ("resourceclaimtemplates", "resourceclaims", "deviceclasses", "resourceslices")
    ),
    in_chart=False,
)
"""For commands that plan with claimed devices."""
DEFRAG_PLANS = RequiredGrant(
    role="kueue-defragmentationplan-editor-role",
    verbs=("create", "get", "list", "patch"),
    resources=(f"defragmentationplans.{names.KQUEUE_GROUP}", f"defragmentationplans.{names.KQUEUE_GROUP}/status"),
)
"""For the commands that read and write DefragmentationPlans."""
RESERVATION_EDITOR = RequiredGrant(
    role="kueue-reservation-editor-role",
    verbs=("create", "delete", "get", "list", "patch"),
    resources=(f"reservations.{names.KQUEUE_GROUP}",),
)
"""For `kqueue drain`."""
CORDON = RequiredGrant(
    role="kqueue-node-cordoner-role", verbs=("get", "list", "patch"), resources=("nodes",), in_chart=False
)
"""For the cordons of `kqueue drain`."""


def quotas_in(namespace: str) -> RequiredGrant:
    """Return the grant for `kqueue quota`."""
    return RequiredGrant(
        role="kqueue-quotas-viewer-role", verbs=("list",), resources=_ours("queuequotas"), namespace=namespace
    )


def workloads_in(namespace: str) -> RequiredGrant:
    """Return the grant for names and positions of waiting workloads."""
    return RequiredGrant(
        role="kueue-workload-viewer-role",
        verbs=("get", "list", "watch"),
        resources=(f"workloads.{names.GROUP}",),
        namespace=namespace,
    )


@contextmanager
def needs(grant: RequiredGrant, hint: str = "") -> Iterator[None]:
    """Add to a refusal inside the block the grant to ask an administrator for, and a hint on its own line.

    Raises:
        ForbiddenError: the refusal, with these lines.
    """
    try:
        yield
    except ForbiddenError as e:
        found = _USER.search(str(e))
        lines = [str(e), grant.words(found[1] if found else ""), *([hint] if hint else [])]
        raise ForbiddenError("\n".join(lines), status=e.status, reason=e.reason) from e
