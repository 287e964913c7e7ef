"""Which path answers for which kind, and with what.

Paths follow the ecosystem: `/mutate-<group with dashes>-<version>-<kind>`; the core group is empty (`/mutate--v1-pod`).
A path whose integration is off answers "allowed", so that one webhook configuration serves every set of integrations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kqueue.api import names
from kqueue.jobs.kind import ReviewedKind, Surroundings
from kqueue.jobs.registry import REVIEWED
from kqueue.jobs.switches import Switches
from webhooks import quota, workloads
from webhooks.review import ALLOWED, Answer, Request

Handler = Callable[[Request], Answer]

FRAMEWORK_PATHS: Mapping[str, str] = {
    "batch/job": "batch-v1-job",
    "pod": "-v1-pod",
    "jobset.x-k8s.io/jobset": "jobset-x-k8s-io-v1alpha2-jobset",
    "deployment": "apps-v1-deployment",
    "statefulset": "apps-v1-statefulset",
    "leaderworkerset.x-k8s.io/leaderworkerset": "leaderworkerset-x-k8s-io-v1-leaderworkerset",
    "kubeflow.org/pytorchjob": "kubeflow-org-v1-pytorchjob",
    "kubeflow.org/tfjob": "kubeflow-org-v1-tfjob",
    "kubeflow.org/xgboostjob": "kubeflow-org-v1-xgboostjob",
    "kubeflow.org/paddlejob": "kubeflow-org-v1-paddlejob",
    "kubeflow.org/jaxjob": "kubeflow-org-v1-jaxjob",
    "kubeflow.org/mpijob": "kubeflow-org-v2beta1-mpijob",
    "trainer.kubeflow.org/trainjob": "trainer-kubeflow-org-v1alpha1-trainjob",
    "ray.io/rayjob": "ray-io-v1-rayjob",
    "ray.io/raycluster": "ray-io-v1-raycluster",
    "ray.io/rayservice": "ray-io-v1-rayservice",
    "workload.codeflare.dev/appwrapper": "workload-codeflare-dev-v1beta2-appwrapper",
    "sparkoperator.k8s.io/sparkapplication": "sparkoperator-k8s-io-v1beta2-sparkapplication",
}
"""Path of each job kind's webhooks, after `/mutate-` and `/validate-`."""

_OURS = f"{names.GROUP.replace('.', '-')}-{names.VERSION}"


def routes(frameworks: Iterable[str], switches: Switches) -> dict[str, Handler]:
    """Path to handler, for all kinds that there are; those that are off allow everything."""
    enabled = set(frameworks)
    found: dict[str, Handler] = {}
    for framework, rest in FRAMEWORK_PATHS.items():
        kind = REVIEWED.get(framework) if framework in enabled else None
        found[f"/mutate-{rest}"] = _mutate_job(kind, switches) if kind is not None else _allow
        found[f"/validate-{rest}"] = _validate_job(kind, switches) if kind is not None else _allow
    return found | _own_kinds(switches)


def _own_kinds(switches: Switches) -> dict[str, Handler]:
    return {
        f"/mutate-{_OURS}-workload": lambda r: Answer(patch=workloads.defaults(r.obj, switches)),
        f"/validate-{_OURS}-workload": lambda r: Answer(
            problems=workloads.problems(r.obj, r.old, switches, subresource=r.subresource)
        ),
        f"/mutate-{_OURS}-clusterqueue": lambda r: Answer(patch=quota.finalizer(r.obj)),
        f"/validate-{_OURS}-clusterqueue": lambda r: Answer(
            problems=quota.cluster_queue_problems(r.obj, r.old, switches)
        ),
        f"/mutate-{_OURS}-resourceflavor": lambda r: Answer(patch=quota.finalizer(r.obj)),
        f"/validate-{_OURS}-resourceflavor": lambda r: Answer(problems=quota.flavor_problems(r.obj)),
        f"/validate-{_OURS}-cohort": lambda r: Answer(
            problems=quota.cohort_problems(r.obj), warnings=quota.cohort_warnings(r.obj)
        ),
    }


def _allow(_request: Request) -> Answer:
    return ALLOWED


def _mutate_job(kind: ReviewedKind, switches: Switches) -> Handler:
    around = Surroundings(switches=switches)
    return lambda request: Answer(patch=kind.defaults(request.obj, around))


def _validate_job(kind: ReviewedKind, switches: Switches) -> Handler:
    around = Surroundings(switches=switches)

    def answer(request: Request) -> Answer:
        problems = kind.problems(request.obj, request.old, around)
        return Answer(problems=problems, warnings=kind.warnings(request.obj, around))

    return answer
