"""Sections of the configuration file about the process: addresses, clients, certificates, election, metrics."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from kqueue.config import names
from kqueue.config.address import parse_address
from kqueue.config.duration import Duration
from kqueue.config.section import Section, refuse, refuse_any
from kqueue.config.selector import SelectorSettings
from kqueue.errors import FieldError

Int32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]


def _address(text: str) -> str:
    parse_address(text)
    return text


def _url_path(text: str) -> str:
    if not re.fullmatch(r"/[A-Za-z0-9._~/-]+", text):
        raise ValueError("must be a URL path that begins with a slash, as in /readyz")
    return text


BindAddress = Annotated[str, AfterValidator(_address)]
UrlPath = Annotated[str, AfterValidator(_url_path)]


class Health(Section):
    """Address and paths of the liveness and readiness probes."""

    health_probe_bind_address: BindAddress = ":8081"
    """Address of the probes; `0` switches them off."""
    readiness_endpoint_name: UrlPath = "/readyz"
    """Path of the readiness probe; its answer names the failed checks."""
    liveness_endpoint_name: UrlPath = "/healthz"
    """Path of the liveness probe."""

    @model_validator(mode="after")
    def _paths_differ(self) -> Self:
        if self.readiness_endpoint_name == self.liveness_endpoint_name:
            refuse(FieldError("livenessEndpointName", "must differ from readinessEndpointName"))
        return self


class CustomLabelSettings(Section):
    """A label of metrics whose value comes from a label or an annotation of the object."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z][a-zA-Z0-9_]*$")]
    """Name of the label; the metrics carry it with the prefix `custom_`."""
    source_label_key: str = ""
    """Label with the value; default without either key: the name."""
    source_annotation_key: str = ""
    """Annotation with the value."""
    source_kind: Literal["ClusterQueue", "LocalQueue", "Cohort", "Workload"] = "ClusterQueue"
    """Object that has the label or annotation."""
    tracked_values: tuple[str, ...] = ()
    """Values that are exported; all other values are exported as one.  Empty: all values are exported."""

    @model_validator(mode="after")
    def _rules(self) -> Self:
        problems: list[FieldError] = []
        if self.source_label_key and self.source_annotation_key:
            problems.append(FieldError("sourceAnnotationKey", "must be left out when sourceLabelKey is given"))
        field = "sourceAnnotationKey" if self.source_annotation_key else "sourceLabelKey"
        rule = names.label_key(self.source_annotation_key or self.source_label_key or self.name)
        if rule:
            problems.append(FieldError(field, rule))
        limit = 12 if self.source_kind == "Workload" else 16
        if len(self.tracked_values) > limit:
            problems.append(FieldError("trackedValues", f"must have at most {limit} values"))
        if len(set(self.tracked_values)) < len(self.tracked_values):
            problems.append(FieldError("trackedValues", "must not repeat a value"))
        if self.source_kind == "Workload" and not self.tracked_values:
            problems.append(
                FieldError("trackedValues", "must be given with sourceKind Workload, or series have no bound")
            )
        refuse_any(problems)
        return self


class LocalQueueMetricsSettings(Section):
    """Whether LocalQueues have metrics of their own."""

    enable: bool = False
    """Whether LocalQueues have metrics."""
    local_queue_selector: SelectorSettings | None = None
    """The LocalQueues with metrics; None: all."""


class MetricsOptions(Section):
    """Address of the metrics, and optional metrics."""

    bind_address: BindAddress = ":8443"
    """Address of `/metrics`; `0` switches it off."""
    enable_cluster_queue_resources: bool = False
    """Whether quota and usage of every queue, flavor and resource are exported, too."""
    local_queue_metrics: LocalQueueMetricsSettings = LocalQueueMetricsSettings(enable=True)
    custom_labels: Annotated[tuple[CustomLabelSettings, ...], Field(max_length=20)] = ()

    @model_validator(mode="after")
    def _custom_labels_are_few_and_distinct(self) -> Self:
        problems: list[FieldError] = []
        for name, times in Counter(label.name for label in self.custom_labels).items():
            if times > 1:
                problems.append(FieldError("customLabels", f"must not have two labels named {name}"))
        for kind, count in Counter(label.source_kind for label in self.custom_labels).items():
            limit = 2 if kind == "Workload" else 6
            if count > limit:
                problems.append(FieldError("customLabels", f"must have at most {limit} labels of sourceKind {kind}"))
        refuse_any(problems)
        return self


class Webhook(Section):
    """Address of the admission webhooks."""

    port: Annotated[int, Field(ge=1, le=65535)] = 9443
    """Port of the webhooks."""
    host: str = ""
    """Empty: all interfaces."""
    cert_dir: Path = Path("/").joinpath("tmp", "k8s-webhook-server", "serving-certs")
    """Holds `tls.crt` and `tls.key`.  The default is the ecosystem's, whatever TMPDIR says."""
    register_webhooks: bool = True
    """Whether the webhooks manage the two webhook configurations.  false: an administrator applies them."""


class LeaderElectionSettings(Section):
    """The Lease by which replicas elect a leader."""

    leader_elect: bool = True
    """Whether replicas elect a leader; false requires a single replica."""
    lease_duration: Duration = timedelta(seconds=15)
    """Time without a renewal after which a follower takes over."""
    renew_deadline: Duration = timedelta(seconds=10)
    """Time after which a leader that cannot renew stops leading."""
    retry_period: Duration = timedelta(seconds=2)
    """Time between two tries."""
    resource_lock: Literal["leases"] = "leases"
    """Kind of the lock."""
    resource_name: str = "c1f6bfd2.kueue.x-k8s.io"
    """Name of the Lease."""
    resource_namespace: str = ""
    """Empty in the file: the own namespace; never empty after `load`."""

    @model_validator(mode="after")
    def _times_nest(self) -> Self:
        problems: list[FieldError] = []
        if self.retry_period <= timedelta(0):
            problems.append(FieldError("retryPeriod", "must be more than zero"))
        if self.renew_deadline <= self.retry_period:
            problems.append(
                FieldError("renewDeadline", "must be longer than retryPeriod, or one lost call ends the lead")
            )
        if self.lease_duration <= self.renew_deadline:
            problems.append(FieldError("leaseDuration", "must be longer than renewDeadline, or two replicas may lead"))
        if self.lease_duration % timedelta(seconds=1):
            problems.append(FieldError("leaseDuration", "must be whole seconds: a Lease cannot say less"))
        if rule := names.dns_subdomain(self.resource_name):
            problems.append(FieldError("resourceName", rule, self.resource_name))
        if self.resource_namespace and (rule := names.dns_label(self.resource_namespace)):
            problems.append(FieldError("resourceNamespace", rule, self.resource_namespace))
        refuse_any(problems)
        return self


class ControllerConcurrency(Section):
    """Number of keys of a kind that are reconciled concurrently."""

    group_kind_concurrency: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """`Kind.group` (the core group: `Kind`) to workers.  Kinds left out keep kqueue's defaults, which differ from
    Kueue's, because a worker needs no thread."""
    cache_sync_timeout: Annotated[int, Field(ge=0)] = 120_000_000_000
    """Nanoseconds, as in the compatible file."""

    @field_validator("group_kind_concurrency")
    @classmethod
    def _keys_are_kinds(cls, value: dict[str, int]) -> dict[str, int]:
        for key in value:
            if not re.fullmatch(r"[A-Z][A-Za-z0-9]*(\.[a-z0-9.-]+)?", key):
                refuse(FieldError(key, "must have the form Kind.group, as in Workload.kueue.x-k8s.io"))
        return value


class ClientConnection(Section):
    """Rate limit for all calls of the API server."""

    qps: float = 300.0
    """Calls per second; negative switches the limiter off."""
    burst: Annotated[int, Field(ge=0, le=2**31 - 1)] = 500
    """Burst: calls that may be made at once after a pause."""

    @model_validator(mode="after")
    def _rate_lets_calls_through(self) -> Self:
        if self.qps == 0:
            refuse(FieldError("qps", "must not be 0: no call would pass; a negative number switches the limit off"))
        if self.qps > 0 and self.burst == 0:
            refuse(FieldError("burst", "must be at least 1 when qps is positive"))
        return self


class InternalCertManagement(Section):
    """Whether kqueue makes its own certificates."""

    enable: bool = True
    """Whether kqueue creates, shares (in a Secret) and rotates certificates; otherwise it reads them from
    `webhook.certDir`."""
    webhook_service_name: str = "kueue-webhook-service"
    """Service of the webhooks, for which the certificate is made."""
    webhook_secret_name: str = "kueue-webhook-server-cert"  # noqa: S105  (the name of an object)
    """Secret that the replicas share."""

    @model_validator(mode="after")
    def _names_are_valid_when_used(self) -> Self:
        if not self.enable:
            return self
        problems = []
        if rule := names.dns_1035_label(self.webhook_service_name):
            problems.append(FieldError("webhookServiceName", rule, self.webhook_service_name))
        if rule := names.dns_subdomain(self.webhook_secret_name):
            problems.append(FieldError("webhookSecretName", rule, self.webhook_secret_name))
        refuse_any(problems)
        return self


class VisibilityServerSettings(Section):
    """Address of the aggregated visibility API."""

    bind_address: str = ""
    """Address; empty: all interfaces."""
    bind_port: Annotated[int, Field(ge=1, le=65535)] = 8082
    """Port."""

    @field_validator("bind_address")
    @classmethod
    def _is_an_ip(cls, value: str) -> str:
        from ipaddress import ip_address

        if value:
            try:
                ip_address(value)
            except ValueError:
                raise ValueError("must be an IP address, or empty for all interfaces") from None
        return value
