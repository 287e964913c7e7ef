"""The kinds of jobs that kqueue knows: one row each, facts alone.

The adapter of a kind reads and changes its objects (`kqueue/jobs/catalog.py`).  From these rows come the names
that `integrations.frameworks` takes, the kinds through which owners are followed, the paths of webhooks, the survey of
objects that are not queued, and the chart's rights and roles.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

GroupKind = tuple[str, str]
"""API group and kind, whatever the version."""

POD: GroupKind = ("", "Pod")
ALL_VIEWERS, NO_BATCH_USERS = "buva", "bva"
"""Viewers of objects: batch administrators, batch users and users who may view the namespace; or no batch users.
Source: the roles of Kueue's chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadKind:
    """A kind whose objects kqueue reads, because objects of another kind refer to them."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind.

    Args:
        framework: its name in `integrations.frameworks`; empty for a kind that owners only pass through.
        group, version, kind, plural: as in Kubernetes' API.
        through_pods: its objects are queued through their pods, so that `pod` is on where it is.
        makes: kinds of the objects that its controller makes, among the kinds here; None: nothing is known.
        drivers: its pods make further pods of an object, as a driver makes executors.
        controlled: it has a controller; without one, what runs in it makes what it owns.
        account: account in kube-system of the kind's controller; empty: it has none, or another project's.
        gate: feature gate that has to be on where the kind is; empty: none.
        child_label: label of the batch Jobs that an object is run as, with its name; empty: it is not run so.
        pod_label: label of the pods of an object, with its name; empty: there is none.
        stop_writes_status: to stop an object, kqueue also writes its status.
        watched: a reconciler of its own reads objects that are queued through their pods.
        managed_by: path of the field that names the controller of an object, so that another cluster may run it; empty:
            there is no such field, or objects of the kind cannot use a prebuilt Workload.
        sent_held: other clusters may run copies of its objects, although these have no such field: on the cluster that
            sends them their flag keeps them from running.
        reads: kinds of other objects from which the pods of an object follow (`kqueue/jobs/others.py`).
        viewers: who gets the chart's role that views objects, in the letters of its file of user roles; empty: the
            chart has no roles of users for the kind.
    """

    framework: str
    group: str
    version: str
    kind: str
    plural: str
    through_pods: bool = False
    makes: frozenset[GroupKind] | None = None
    drivers: bool = False
    controlled: bool = True
    account: str = ""
    gate: str = ""
    child_label: str = ""
    pod_label: str = ""
    stop_writes_status: bool = False
    watched: bool = False
    managed_by: str = ""
    sent_held: bool = False
    reads: tuple[ReadKind, ...] = ()
    viewers: str = ALL_VIEWERS

    @property
    def group_kind(self) -> GroupKind:
        """Group and kind."""
        return self.group, self.kind

    @property
    def text(self) -> str:
        """`Kind.version.group`, as `integrations.externalFrameworks` has it."""
        return f"{self.kind}.{self.version}.{self.group}"

    @property
    def webhook_path(self) -> str:
        """Path of its webhooks, after `/mutate-` and `/validate-`.  Source: the ecosystem's convention."""
        return webhook_path(self.group, self.version, self.kind)


def webhook_path(group: str, version: str, kind: str) -> str:
    """Return the path of a kind's webhooks, after `/mutate-` and `/validate-`."""
    return f"{group.replace('.', '-')}-{version}-{kind.lower()}"


_BATCH_JOB, _JOB_SET = ("batch", "Job"), ("jobset.x-k8s.io", "JobSet")
_RAY_CLUSTER = ("ray.io", "RayCluster")
_TRAINER = "trainer.kubeflow.org"
TRAINING_RUNTIMES = (
    ReadKind(
        group=_TRAINER,
        version="v1alpha1",
        kind="ClusterTrainingRuntime",
        plural="clustertrainingruntimes",
        namespaced=False,
    ),
    ReadKind(group=_TRAINER, version="v1alpha1", kind="TrainingRuntime", plural="trainingruntimes"),
)
"""The kinds of runtimes, whose templates TrainJobs fill in."""
JOB_SETS = ReadKind(group="jobset.x-k8s.io", version="v1alpha2", kind="JobSet", plural="jobsets")
"""JobSets, as objects that TrainJobs are run as."""
RAY_CLUSTERS = ReadKind(group="ray.io", version="v1", kind="RayCluster", plural="rayclusters")
"""RayClusters, as objects that RayJobs and RayServices run in."""


def _kubeflow(version: str, kind: str, *makes: GroupKind) -> Kind:
    name = kind.lower()
    return Kind(
        framework=f"kubeflow.org/{name}",
        group="kubeflow.org",
        version=version,
        kind=kind,
        plural=f"{name}s",
        makes=frozenset({POD, *makes}),
        pod_label="training.kubeflow.org/job-name",
        managed_by="spec.runPolicy.managedBy",
    )


_ROWS = (
    Kind(
        framework="batch/job",
        group="batch",
        version="v1",
        kind="Job",
        plural="jobs",
        managed_by="spec.managedBy",
        makes=frozenset({POD, _BATCH_JOB}),  # managers of this API let a Job be the parent of Jobs, too
        account="job-controller",
        stop_writes_status=True,
        pod_label="batch.kubernetes.io/job-name",
    ),
    Kind(
        framework="jobset.x-k8s.io/jobset",
        group="jobset.x-k8s.io",
        version="v1alpha2",
        kind="JobSet",
        plural="jobsets",
        managed_by="spec.managedBy",
        makes=frozenset({_BATCH_JOB}),
        child_label="jobset.sigs.k8s.io/jobset-name",
        pod_label="jobset.sigs.k8s.io/jobset-name",
    ),
    Kind(
        framework="pod",
        group="",
        version="v1",
        kind="Pod",
        plural="pods",
        controlled=False,
        viewers="",
    ),
    Kind(
        framework="deployment",
        group="apps",
        version="v1",
        kind="Deployment",
        plural="deployments",
        through_pods=True,
        makes=frozenset({("apps", "ReplicaSet")}),
        account="deployment-controller",
        viewers="",
    ),
    Kind(
        framework="statefulset",
        group="apps",
        version="v1",
        kind="StatefulSet",
        plural="statefulsets",
        through_pods=True,
        makes=frozenset({POD}),
        account="statefulset-controller",
        watched=True,
        viewers="",
    ),
    Kind(
        framework="leaderworkerset.x-k8s.io/leaderworkerset",
        group="leaderworkerset.x-k8s.io",
        version="v1",
        kind="LeaderWorkerSet",
        plural="leaderworkersets",
        through_pods=True,
        makes=frozenset({("apps", "StatefulSet")}),
        watched=True,
        pod_label="leaderworkerset.sigs.k8s.io/name",
    ),
    _kubeflow("v1", "PyTorchJob"),
    _kubeflow("v1", "TFJob"),
    _kubeflow("v1", "XGBoostJob"),
    _kubeflow("v1", "PaddleJob"),
    _kubeflow("v1", "JAXJob"),
    _kubeflow("v2beta1", "MPIJob", _BATCH_JOB),  # a Job runs its launcher
    Kind(
        framework="trainer.kubeflow.org/trainjob",
        group="trainer.kubeflow.org",
        version="v1alpha1",
        kind="TrainJob",
        plural="trainjobs",
        managed_by="spec.managedBy",
        makes=frozenset({_JOB_SET}),
        child_label="jobset.sigs.k8s.io/jobset-name",
        pod_label="jobset.sigs.k8s.io/jobset-name",
        reads=TRAINING_RUNTIMES,
    ),
    Kind(
        framework="ray.io/rayjob",
        group="ray.io",
        version="v1",
        kind="RayJob",
        plural="rayjobs",
        managed_by="spec.managedBy",
        makes=frozenset({_RAY_CLUSTER, _BATCH_JOB}),  # a Job submits it
        reads=(RAY_CLUSTERS,),
    ),
    Kind(
        framework="ray.io/raycluster",
        group="ray.io",
        version="v1",
        kind="RayCluster",
        plural="rayclusters",
        managed_by="spec.managedBy",
        makes=frozenset({POD, _BATCH_JOB}),  # a Job clears Redis at the end
        pod_label="ray.io/cluster",
        viewers=NO_BATCH_USERS,
    ),
    Kind(
        framework="ray.io/rayservice",
        group="ray.io",
        version="v1",
        kind="RayService",
        plural="rayservices",
        managed_by="spec.managedBy",
        makes=frozenset({_RAY_CLUSTER}),
        reads=(RAY_CLUSTERS,),
        viewers=NO_BATCH_USERS,
    ),
    Kind(
        framework="workload.codeflare.dev/appwrapper",
        group="workload.codeflare.dev",
        version="v1beta2",
        kind="AppWrapper",
        plural="appwrappers",
        managed_by="spec.managedBy",
        pod_label="workload.codeflare.dev/appwrapper",
        viewers="",
    ),
    Kind(
        framework="sparkoperator.k8s.io/sparkapplication",
        group="sparkoperator.k8s.io",
        version="v1beta2",
        kind="SparkApplication",
        plural="sparkapplications",
        makes=frozenset({POD}),
        drivers=True,
        sent_held=True,
        pod_label="sparkoperator.k8s.io/app-name",
        gate="SparkApplicationIntegration",
    ),
)

GANG_DIALECTS = (
    "scheduling.k8s.io/podgroup",
    "scheduling.x-k8s.io/podgroup",
    "kqueue.dev/coscheduling-labels",
    "scheduling.volcano.sh/podgroup",
    "kqueue.dev/batchprocess",
)
"""Names of `integrations.frameworks` that are no kind of job, but a form of gangs of pods; `pod` is both."""

DISPATCHER = "kueue.x-k8s.io/multikueue"
"""The controller of checks that sends workloads to other clusters."""
CHECK_CONTROLLERS = ("kueue.x-k8s.io/provisioning-request", DISPATCHER)
"""Controllers of AdmissionChecks that kqueue contains, by the names in `spec.controllerName`."""
DEFAULT_CHECK_CONTROLLERS = CHECK_CONTROLLERS[:1]
"""Controllers that run unless the configuration names others.  MultiKueue must be named: it reads Secrets."""

REPLICA_SET = Kind(
    framework="",
    group="apps",
    version="v1",
    kind="ReplicaSet",
    plural="replicasets",
    makes=frozenset({POD}),
    account="replicaset-controller",
)
"""No framework: owners are followed through it."""

_frameworks: dict[str, Kind] = {}
_owners: dict[GroupKind, Kind] = {}

FRAMEWORKS: Mapping[str, Kind] = MappingProxyType(_frameworks)
"""Kinds by the name that `integrations.frameworks` uses, in the order in which people are shown them."""
OWNERS: Mapping[GroupKind, Kind] = MappingProxyType(_owners)
"""All kinds through which owners are followed."""


def register(kind: Kind) -> None:
    """Add a kind at the start of a process.  Raises ValueError when its name or the kind is there already."""
    if not kind.framework or kind.framework in _frameworks or kind.group_kind in _owners:
        raise ValueError(f"kind {kind.text} cannot be added as {kind.framework!r}: the name is empty, or one is taken")
    _frameworks[kind.framework] = _owners[kind.group_kind] = kind


def framework_of(group: str, kind: str) -> str | None:
    """Return the framework whose objects are of this kind, in any version; None when there is none."""
    row = _owners.get((group, kind))
    return row.framework or None if row is not None else None


def framework_above(group: str, kind: str) -> str | None:
    """Return `framework_of`; for a kind between owner and pods, the framework whose controller makes its objects."""
    row = _owners.get((group, kind))
    if row is None or row.framework:
        return framework_of(group, kind)
    return next((name for name, above in _frameworks.items() if row.group_kind in (above.makes or ())), None)


def kinds_between(framework: str) -> list[Kind]:
    """Return the kinds between the objects of a framework and the batch Jobs that they are run as; [] for most."""
    row = _frameworks.get(framework)
    made = [_owners[kind] for kind in sorted(row.makes or ()) if kind in _owners] if row is not None else []
    return [kind for kind in made if kind.child_label]


def implies_pods(frameworks: Collection[str]) -> bool:
    """Whether pods are watched where these frameworks are: with a kind that is queued through its pods, and with a form
    of gangs."""
    if any(name in frameworks for name in GANG_DIALECTS):
        return True
    return any(row.through_pods for name, row in _frameworks.items() if name in frameworks)


for _row in _ROWS:
    register(_row)
_owners[REPLICA_SET.group_kind] = REPLICA_SET
