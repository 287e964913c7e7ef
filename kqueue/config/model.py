"""The controller's configuration file, `config.kueue.x-k8s.io/v1beta2` `Configuration`, as one frozen value."""

from __future__ import annotations

from typing import Any

from pydantic import Field, PrivateAttr, field_validator

from kqueue.config import names
from kqueue.config.decision_record import DecisionRecordSettings
from kqueue.config.declared import DeclaredKind
from kqueue.config.gangs import GangSettings, NodeClassSettings
from kqueue.config.gates import gate_problems, resolve_gates
from kqueue.config.joint import JointPlacementSettings
from kqueue.config.object_path import MANAGED_BY, ObjectPath
from kqueue.config.plugins import Plugins, PreemptionSettings
from kqueue.config.policy import (
    AdmissionCheckSettings,
    AdmissionFairSharing,
    FairSharingSettings,
    Integrations,
    MultiKueue,
    ObjectRetentionPolicies,
    Resources,
    Tas,
    WaitForPodsReady,
)
from kqueue.config.process import (
    BindAddress,
    ClientConnection,
    ControllerConcurrency,
    Health,
    InternalCertManagement,
    LeaderElectionSettings,
    MetricsOptions,
    VisibilityServerSettings,
    Webhook,
)
from kqueue.config.run_times import RunTimeSettings
from kqueue.config.section import Section, refuse_any
from kqueue.config.selector import RequirementSettings, SelectorSettings
from kqueue.config.start_times import StartTimeSettings
from kqueue.config.tls import Tls
from kqueue.errors import FieldError
from kqueue.kinds import DISPATCHER, FRAMEWORKS
from kqueue.kube.names import NAMESPACE_NAME_LABEL

DEFAULT_NAMESPACE = "kueue-system"
_PROTECTED_NAMESPACE = "kube-system"


class Configuration(Section):
    """Every setting of the file.  `load` returns one, with the settings that depend on the namespace filled in.

    `Configuration()` alone is valid too: all defaults, in namespace kueue-system.
    """

    namespace: str = DEFAULT_NAMESPACE
    """Namespace in which kqueue runs."""
    health: Health = Health()
    metrics: MetricsOptions = MetricsOptions()
    webhook: Webhook = Webhook()
    leader_election: LeaderElectionSettings = LeaderElectionSettings()
    controller: ControllerConcurrency = ControllerConcurrency()
    client_connection: ClientConnection = ClientConnection()
    internal_cert_management: InternalCertManagement = InternalCertManagement()
    pprof_bind_address: BindAddress = ""
    """Address of Go profiles; kqueue serves none."""
    tls: Tls | None = None
    """None: the defaults of the libraries."""
    manage_jobs_without_queue_name: bool = False
    """Whether jobs without a queue stay suspended until a queue is set."""
    managed_jobs_namespace_selector: SelectorSettings | None = None
    """Never None after `load`: all namespaces but kube-system and the own one."""
    wait_for_pods_ready: WaitForPodsReady | None = WaitForPodsReady().resolved()
    """None: the feature is off."""
    integrations: Integrations = Integrations()
    admission_checks: AdmissionCheckSettings = AdmissionCheckSettings()
    multi_kueue: MultiKueue = MultiKueue()
    fair_sharing: FairSharingSettings | None = None
    """None: the feature is off."""
    admission_fair_sharing: AdmissionFairSharing | None = None
    """None: the feature is off."""
    resources: Resources = Resources()
    object_retention_policies: ObjectRetentionPolicies = ObjectRetentionPolicies()
    visibility_server: VisibilityServerSettings = VisibilityServerSettings()
    tas: Tas = Tas()
    plugins: Plugins = Plugins()
    preemption: PreemptionSettings = PreemptionSettings()
    gangs: GangSettings = GangSettings()
    node_classes: NodeClassSettings = NodeClassSettings()
    joint: JointPlacementSettings = JointPlacementSettings()
    decision_record: DecisionRecordSettings = DecisionRecordSettings()
    run_times: RunTimeSettings = RunTimeSettings()
    start_times: StartTimeSettings = StartTimeSettings()
    feature_gates: dict[str, bool] = Field(default_factory=dict)
    """Gates that the file or the flag names; `enabled` returns the resulting value."""

    @field_validator("feature_gates")
    @classmethod
    def _gates_are_known_and_consistent(cls, value: dict[str, bool]) -> dict[str, bool]:
        refuse_any([FieldError(gate, problem) for gate, problem in gate_problems(value)])
        return value

    _gates: dict[str, bool] = PrivateAttr(default_factory=dict)
    _warnings: tuple[str, ...] = PrivateAttr(default=())

    def model_post_init(self, context: Any, /) -> None:
        """Compute the values of all gates once."""
        self._gates = resolve_gates(self.feature_gates)

    def counts_devices(self) -> bool:
        """Return whether the devices that pods claim count as quota."""
        return bool(self.resources.device_class_mappings) and self.enabled("KueueDRAIntegration")

    def enabled(self, gate: str) -> bool:
        """Whether feature `gate` is on.

        Raises:
            KeyError: no gate has this name (a bug in the caller: names in files are checked by `load`).
        """
        return self._gates[gate]

    def declared_kinds(self) -> tuple[DeclaredKind, ...]:
        """Return the declared kinds; `managed_by` is set only for kinds whose objects other clusters may run.

        A kind in `multiKueue.externalFrameworks` has the field at `spec.managedBy`, unless it is declared elsewhere.
        """
        on = self.enabled("MultiKueueAdaptersForCustomJobs")
        named = {external.name for external in self.multi_kueue.external_frameworks}

        def path_of(kind: DeclaredKind) -> ObjectPath | None:
            return (kind.managed_by or (MANAGED_BY if kind.name in named else None)) if on else None

        return tuple(kind.model_copy(update={"managed_by": path_of(kind)}) for kind in self.integrations.declared_kinds)

    def check_controllers(self) -> tuple[str, ...]:
        """Return the controllers of AdmissionChecks that run, without those whose feature gate is off."""
        named = self.admission_checks.controllers
        return tuple(name for name in named if name != DISPATCHER or self.enabled("MultiKueue"))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Fields that were given and have no effect, one sentence each; to be logged at start."""
        return self._warnings

    @property
    def namespace_selector(self) -> SelectorSettings:
        """`managedJobsNamespaceSelector`, or what it is by default."""
        return self.managed_jobs_namespace_selector or default_namespace_selector(self.namespace)

    def manages_namespace(self, name: str, labels: dict[str, str]) -> bool:
        """Whether jobs without a queue name are managed in namespace `name` with `labels`."""
        return self.namespace_selector.matches({NAMESPACE_NAME_LABEL: name} | labels)


def default_namespace_selector(own: str) -> SelectorSettings:
    """Return a selector of all namespaces but kube-system and kqueue's own, with the pods that a restart needs.

    An outage of kqueue must never block these pods.
    """
    excluded = RequirementSettings(key=NAMESPACE_NAME_LABEL, operator="NotIn", values=(_PROTECTED_NAMESPACE, own))
    return SelectorSettings(match_expressions=(excluded,))


def cross_problems(configuration: Configuration) -> list[FieldError]:
    """Return the contradictions between sections that are valid by themselves."""
    return [
        *_namespace_problems(configuration),
        *_integration_problems(configuration),
        *_resource_problems(configuration),
    ]


def _namespace_problems(configuration: Configuration) -> list[FieldError]:
    problems = []
    if rule := names.dns_label(configuration.namespace):
        problems.append(FieldError("namespace", rule, configuration.namespace))
    selector = configuration.managed_jobs_namespace_selector
    for namespace in (_PROTECTED_NAMESPACE, configuration.namespace):
        if selector is not None and selector.matches({NAMESPACE_NAME_LABEL: namespace}):
            remedy = f"must not match namespace {namespace}: add {NAMESPACE_NAME_LABEL} NotIn [{namespace}]"
            problems.append(FieldError("managedJobsNamespaceSelector", remedy))
    return problems


def _integration_problems(configuration: Configuration) -> list[FieldError]:
    problems = []
    integrations = configuration.integrations
    for name, row in FRAMEWORKS.items():
        if name in integrations.frameworks and row.gate and not configuration.enabled(row.gate):
            remedy = f"{name} needs feature gate {row.gate}; set it to true"
            problems.append(FieldError("integrations.frameworks", remedy))
    for index, external in enumerate(configuration.multi_kueue.external_frameworks):
        if external.name in integrations.kinds():
            path = f"multiKueue.externalFrameworks[{index}].name"
            problems.append(FieldError(path, "must not be the kind of an enabled framework", external.name))
    return problems


def _resource_problems(configuration: Configuration) -> list[FieldError]:
    problems = []
    resources = configuration.resources
    ignores = resources.quota_check_strategy == "IgnoreUndeclared" and configuration.enabled("QuotaCheckStrategy")
    if ignores and resources.exclude_resource_prefixes:
        remedy = "must be left out with quotaCheckStrategy IgnoreUndeclared: undeclared resources are ignored anyway"
        problems.append(FieldError("resources.excludeResourcePrefixes", remedy))
    on = {
        "PartitionableDevices": configuration.enabled("KueueDRAIntegrationPartitionableDevices"),
        "ConsumableCapacity": configuration.enabled("KueueDRAIntegrationConsumableCapacity"),
    }
    for index, mapping in enumerate(resources.device_class_mappings):
        for position, source in enumerate(mapping.sources):
            kind = "counter" if source.counter is not None else "capacity"
            part = "PartitionableDevices" if kind == "counter" else "ConsumableCapacity"
            if not on[part]:
                gate = f"KueueDRAIntegration{part}"
                path = f"resources.deviceClassMappings[{index}].sources[{position}].{kind}"
                problems.append(FieldError(path, f"needs feature gate {gate}; set it to true"))
    return problems
