"""Sections of the configuration file about managed jobs, quota, evictions and retention."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import Field, PlainValidator, field_validator, model_validator

from kqueue.config import names
from kqueue.config.declared import DeclaredKind
from kqueue.config.dispatchers import (
    DISPATCHER_ALL_AT_ONCE,
    DISPATCHER_BEST_DOMAIN,
    DISPATCHER_INCREMENTAL,
    problem_of,
)
from kqueue.config.duration import Duration
from kqueue.config.section import Section, refuse_any
from kqueue.errors import FieldError
from kqueue.kinds import CHECK_CONTROLLERS, DEFAULT_CHECK_CONTROLLERS, FRAMEWORKS, GANG_DIALECTS
from kqueue.kube.quantity import parse as parse_quantity


def _repeated(values: Iterable[str], path: str) -> list[FieldError]:
    return [FieldError(path, f"must not repeat {value}") for value, times in Counter(values).items() if times > 1]


class RequeuingStrategy(Section):
    """Requeue rules for workloads that were evicted because their pods were not ready."""

    timestamp: Literal["Eviction", "Creation"] = "Eviction"
    """Whether its position in the queue follows the time of its eviction or of its creation."""
    backoff_limit_count: Annotated[int, Field(ge=0)] | None = None
    """Maximum number of requeues; None: no limit."""
    backoff_base_seconds: Annotated[int, Field(ge=0)] = 60
    """Pause before the first requeue; each further pause is twice as long."""
    backoff_max_seconds: Annotated[int, Field(ge=0)] = 3600
    """Maximum pause."""


class WaitForPodsReady(Section):
    """Evict admitted workloads whose pods do not become ready."""

    timeout: Duration = timedelta(minutes=30)
    """Time from the admission until all pods must be ready."""
    recovery_timeout: Duration | None = None
    """None in the file: as `timeout`; never None after `load`.  Zero disables eviction after a recovery."""
    block_admission: bool = False
    """Whether no other workload is admitted until all pods are ready."""
    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()

    def resolved(self) -> Self:
        """Return the section with the default instead of a zero timeout, and with the recovery timeout filled in."""
        timeout = self.timeout or timedelta(minutes=30)
        recovery = timeout if self.recovery_timeout is None else self.recovery_timeout
        return self.model_copy(update={"timeout": timeout, "recovery_timeout": recovery})


class AdmissionCheckSettings(Section):
    """Controllers of AdmissionChecks that run in kqueue."""

    controllers: tuple[str, ...] = DEFAULT_CHECK_CONTROLLERS
    """Names of the controllers, as AdmissionChecks have them in `spec.controllerName`; other checks have controllers of
    their own.
    """

    @field_validator("controllers")
    @classmethod
    def _controllers_are_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        known = ", ".join(CHECK_CONTROLLERS)
        unknown = [FieldError("", f"must be one of {known}", name) for name in value if name not in CHECK_CONTROLLERS]
        refuse_any([*unknown, *_repeated(value, "")])
        return value


class Integrations(Section):
    """Managed job kinds."""

    frameworks: tuple[str, ...] = ("batch/job",)
    """Job kinds that are queued, and forms of gangs of pods that are read.  `pod` is switched on with `deployment`,
    `statefulset` and `leaderworkerset.x-k8s.io/leaderworkerset`."""
    external_frameworks: tuple[str, ...] = ()
    """Kinds, as `Kind.version.group`, that other controllers queue: kqueue does not manage the objects that they
    own."""
    label_keys_to_copy: tuple[str, ...] = ()
    """Labels copied from the job to its Workload."""
    declared_kinds: tuple[DeclaredKind, ...] = ()
    """Kinds that users declare.  kqueue's own field; Kueue has none."""
    controller_accounts: tuple[str, ...] = ()
    """User names of controllers that make objects for queued owners, beside those of Kubernetes and ServiceAccounts of
    operators in namespaces of their own.  kqueue's own field; Kueue has none."""

    @field_validator("frameworks")
    @classmethod
    def _empty_means_the_default(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return value or ("batch/job",)

    def _declared_problems(self) -> Iterator[FieldError]:
        """Refuse two adapters of one kind: they would undo each other."""
        built_in = {row.group_kind: name for name, row in FRAMEWORKS.items()}
        taken = dict.fromkeys(self.external_frameworks, "externalFrameworks")
        for index, declared in enumerate(self.declared_kinds):
            path, framework = f"declaredKinds[{index}].kind", built_in.get((declared.group, declared.kind))
            if framework is not None:
                remedy = f"is built in; leave it out here, and add {framework} to integrations.frameworks"
                yield FieldError(path, remedy, declared.name)
            elif declared.name in taken:
                yield FieldError(
                    path, f"is in {taken[declared.name]} already; leave it out here, or there", declared.name
                )
            taken[declared.name] = "declaredKinds"

    @model_validator(mode="after")
    def _frameworks_are_known_and_distinct(self) -> Self:
        problems = _repeated(self.frameworks, "frameworks") + _repeated(self.external_frameworks, "externalFrameworks")
        for index, name in enumerate(self.frameworks):
            known = (*FRAMEWORKS, *GANG_DIALECTS)
            if name not in known:
                hint = names.nearest(name, known) or f"; known are {', '.join(known)}"
                problems.append(FieldError(f"frameworks[{index}]", f"unknown framework{hint}", name))
        own_kinds = {FRAMEWORKS[name].text for name in self.frameworks if name in FRAMEWORKS}
        for index, kind in enumerate(self.external_frameworks):
            path = f"externalFrameworks[{index}]"
            if rule := names.group_version_kind(kind):
                problems.append(FieldError(path, rule, kind))
            elif kind in own_kinds:
                problems.append(FieldError(path, "must not be the kind of an enabled framework", kind))
        problems += self._declared_problems()
        problems += _repeated(self.controller_accounts, "controllerAccounts")
        problems += [
            FieldError(f"controllerAccounts[{index}]", "must be a user's name; leave empty entries out")
            for index, account in enumerate(self.controller_accounts)
            if not account.strip()
        ]
        for index, key in enumerate(self.label_keys_to_copy):
            if rule := names.label_key(key):
                problems.append(FieldError(f"labelKeysToCopy[{index}]", rule, key))
        refuse_any(problems)
        return self

    def kinds(self) -> frozenset[str]:
        """Return `Kind.version.group` of every enabled framework."""
        return frozenset(FRAMEWORKS[name].text for name in self.frameworks if name in FRAMEWORKS)


class IncrementalDispatcherConfig(Section):
    """How many clusters the incremental dispatcher adds per round."""

    step_size: Annotated[int, Field(ge=1)] = 3
    """Clusters per round."""


class BestDomainConfig(Section):
    """How the dispatcher of the best domain asks worker clusters."""

    answer_timeout: Duration = timedelta(seconds=2)
    """Time after which a cluster counts as one that does not answer."""
    patience: Duration = timedelta(seconds=30)
    """Time after which a workload that no cluster has admitted is sent to the next best cluster, too."""

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        most = timedelta(seconds=30)
        if not timedelta(milliseconds=100) <= self.answer_timeout <= most:
            refuse_any([FieldError("answerTimeout", "must be from 100ms to 30s", str(self.answer_timeout))])
        if self.patience < timedelta(seconds=1):
            refuse_any([FieldError("patience", "must be 1s or more", str(self.patience))])
        return self


class ExternalFramework(Section):
    """A custom kind that MultiKueue dispatches."""

    name: str
    """`Kind.version.group`."""

    @field_validator("name")
    @classmethod
    def _is_a_kind(cls, value: str) -> str:
        if rule := names.group_version_kind(value):
            raise ValueError(rule)
        return value


class EnvironmentVariable(Section):
    """One variable of a credentials program."""

    name: Annotated[str, Field(min_length=1)]
    """Name."""
    value: str = ""
    """Value."""


class ExecConfig(Section):
    """A program that prints credentials."""

    api_version: Annotated[str, Field(min_length=1)]
    """Version in which the program answers."""
    command: Annotated[str, Field(min_length=1)]
    """The program."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: tuple[EnvironmentVariable, ...] = ()
    """Variables that it gets besides its own."""
    install_hint: str = ""
    """Hint for users when the program is missing."""
    provide_cluster_info: bool = False
    """Whether it gets information about the cluster."""
    interactive_mode: Literal["Never", "IfAvailable", "Always"]
    """Whether it may prompt a user."""


class AccessProvider(Section):
    """Credentials of clusters of one kind."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the provider."""
    exec_config: ExecConfig


class ClusterProfile(Section):
    """Credentials through ClusterProfile objects."""

    access_providers: tuple[AccessProvider, ...] = ()
    credentials_providers: tuple[AccessProvider, ...] = ()
    """The older name of `accessProviders`."""

    @model_validator(mode="after")
    def _one_name_only(self) -> Self:
        if self.access_providers and self.credentials_providers:
            refuse_any([FieldError("credentialsProviders", "must be left out when accessProviders is given")])
        return self


class MultiKueue(Section):
    """Admission to several clusters."""

    gc_interval: Duration = timedelta(minutes=1)
    """Time between two searches for orphaned objects on worker clusters."""
    origin: str = "multikueue"
    """Label value that marks objects of this cluster."""
    worker_lost_timeout: Duration = timedelta(minutes=15)
    """Time after which a silent worker cluster counts as lost."""
    dispatcher_name: str = DISPATCHER_ALL_AT_ONCE
    """The dispatcher that chooses the clusters: one of kqueue's, or another controller with a domain in its name."""
    incremental_dispatcher_config: IncrementalDispatcherConfig | None = None
    best_domain_config: BestDomainConfig | None = None
    """Only with the dispatcher `kqueue.dev/best-domain`."""
    external_frameworks: tuple[ExternalFramework, ...] = ()
    cluster_profile: ClusterProfile | None = None

    @field_validator("origin")
    @classmethod
    def _origin_is_a_label_value(cls, value: str) -> str:
        if rule := names.label_value(value):
            raise ValueError(rule)
        return value or "multikueue"

    @field_validator("dispatcher_name")
    @classmethod
    def _dispatcher_may_exist(cls, value: str) -> str:
        if rule := problem_of(value):
            raise ValueError(rule)
        return value

    @model_validator(mode="after")
    def _rules(self) -> Self:
        problems = _repeated((f.name for f in self.external_frameworks), "externalFrameworks")
        if self.incremental_dispatcher_config is not None and self.dispatcher_name != DISPATCHER_INCREMENTAL:
            remedy = f"must be left out unless dispatcherName is {DISPATCHER_INCREMENTAL}"
            problems.append(FieldError("incrementalDispatcherConfig", remedy))
        if self.best_domain_config is not None and self.dispatcher_name != DISPATCHER_BEST_DOMAIN:
            remedy = f"must be left out unless dispatcherName is {DISPATCHER_BEST_DOMAIN}"
            problems.append(FieldError("bestDomainConfig", remedy))
        refuse_any(problems)
        return self


_FINAL, _INITIAL = "LessThanOrEqualToFinalShare", "LessThanInitialShare"


class FairSharingSettings(Section):
    """Preemption by weighted share.  On when the section is present."""

    preemption_strategies: tuple[str, ...]
    """Rules for preemption of a sibling queue's workloads: by the shares after the preemption, or by the shares before
    it."""

    @field_validator("preemption_strategies")
    @classmethod
    def _one_of_three_lists(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value not in {(_FINAL,), (_INITIAL,), (_FINAL, _INITIAL)}:
            raise ValueError(f"must be [{_FINAL}], [{_INITIAL}], or both in that order")
        return value


class AdmissionFairSharing(Section):
    """Order LocalQueues by their recent usage."""

    usage_half_life_time: Duration = timedelta(0)
    """Time after which past usage counts half; 0: only current usage counts."""
    usage_sampling_interval: Duration = timedelta(minutes=5)
    """Time between two measurements."""
    resource_weights: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """A resource left out weighs 1."""

    @field_validator("usage_sampling_interval")
    @classmethod
    def _zero_means_the_default(cls, value: timedelta) -> timedelta:
        return value or timedelta(minutes=5)


def _quantity(value: object) -> str:
    text = str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    if parse_quantity(text) is None:
        raise ValueError("must be a quantity such as 1, 500m or 2Gi")
    return text


class TransformationSettings(Section):
    """Count one resource as others."""

    input: Annotated[str, Field(min_length=1)]
    """Resource that is counted as others."""
    strategy: Literal["Retain", "Replace"] = "Retain"
    """Whether it is counted itself, too."""
    multiply_by: str = ""
    """Resource whose amount multiplies the outputs."""
    outputs: dict[str, Annotated[str, PlainValidator(_quantity)]] = Field(default_factory=dict)
    """Resource to quantity per unit of the input."""


class CelSelector(Section):
    """An expression about a device."""

    expression: Annotated[str, Field(min_length=1)]
    """CEL expression that selects a device."""


class DeviceSelector(Section):
    """The devices of a source."""

    cel: CelSelector


_C_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]{0,31}"


def _driver(value: str) -> str:
    if len(value) > 63 or names.dns_subdomain(value):
        raise ValueError("must be a DNS subdomain of at most 63 characters")
    return value


class CounterSource(Section):
    """A shared counter of a driver."""

    name: str
    """Name of the counter."""
    driver: str
    """Driver of the devices."""
    device_selector: DeviceSelector

    @field_validator("name")
    @classmethod
    def _name_is_a_label(cls, value: str) -> str:
        if rule := names.dns_label(value):
            raise ValueError(rule)
        return value

    _driver_is_valid = field_validator("driver")(_driver)


class CapacitySource(Section):
    """A capacity of a driver's devices."""

    name: str
    """Name of the capacity."""
    driver: str
    """Driver of the devices."""
    device_selector: DeviceSelector

    @field_validator("name")
    @classmethod
    def _name_is_qualified(cls, value: str) -> str:
        domain, slash, identifier = value.rpartition("/")
        domain_fine = not slash or (len(domain) <= 63 and names.dns_subdomain(domain.lower()) is None)
        if not domain_fine or not re.fullmatch(_C_IDENTIFIER, identifier):
            raise ValueError("must be a C identifier of at most 32 characters, with a DNS subdomain and '/' before it")
        return value

    _driver_is_valid = field_validator("driver")(_driver)


class DeviceSource(Section):
    """Exactly one of a counter or a capacity."""

    counter: CounterSource | None = None
    capacity: CapacitySource | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.counter is None) == (self.capacity is None):
            refuse_any([FieldError("", "must have exactly one of counter and capacity")])
        return self


class DeviceClassMapping(Section):
    """Device classes counted as one resource."""

    name: str
    """Resource as which they are counted."""
    device_class_names: Annotated[tuple[str, ...], Field(min_length=1, max_length=8)]
    """Device classes that are counted."""
    sources: tuple[DeviceSource, ...] = ()

    @model_validator(mode="after")
    def _rules(self) -> Self:
        problems = _repeated(self.device_class_names, "deviceClassNames")
        keys = {"name": self.name} | {f"deviceClassNames[{i}]": n for i, n in enumerate(self.device_class_names)}
        for path, text in keys.items():
            rule = names.label_key(text) or (None if len(text) <= 253 else "must have at most 253 characters")
            if rule:
                problems.append(FieldError(path, rule, text))
        if len({source.counter is None for source in self.sources}) > 1:
            problems.append(FieldError("sources", "must not mix counter and capacity"))
        refuse_any(problems)
        return self

    def first_counter(self) -> str | None:
        """Return the name of the counter when the first source is one; None otherwise."""
        counter = self.sources[0].counter if self.sources else None
        return None if counter is None else counter.name


class Resources(Section):
    """Mapping of requests to the resources of quota."""

    quota_check_strategy: Literal["BlockUndeclared", "IgnoreUndeclared"] = "BlockUndeclared"
    """Whether a resource that is missing in the queue blocks a workload, or is ignored."""
    exclude_resource_prefixes: tuple[str, ...] = ()
    """Resources with these name prefixes are not counted."""
    transformations: tuple[TransformationSettings, ...] = ()
    device_class_mappings: Annotated[tuple[DeviceClassMapping, ...], Field(max_length=16)] = ()

    @model_validator(mode="after")
    def _rules(self) -> Self:
        problems = _repeated((t.input for t in self.transformations), "transformations")
        problems += _repeated((m.name for m in self.device_class_mappings), "deviceClassMappings")
        problems += self._shared_classes()
        refuse_any(problems)
        return self

    def _shared_classes(self) -> list[FieldError]:
        problems = []
        owner: dict[str, DeviceClassMapping] = {}
        for index, mapping in enumerate(self.device_class_mappings):
            for name in mapping.device_class_names:
                other = owner.setdefault(name, mapping)
                counters = (other.first_counter(), mapping.first_counter())
                if other is not mapping and (None in counters or counters[0] == counters[1]):
                    path = f"deviceClassMappings[{index}].deviceClassNames"
                    problems.append(FieldError(path, f"must not repeat {name}, which {other.name} already counts"))
        return problems


class WorkloadRetention(Section):
    """How long Workloads are kept.  None means for ever, zero means not at all."""

    after_finished: Duration | None = None
    """Retention after its end."""
    after_deactivated_by_kueue: Duration | None = None
    """Retention after kqueue has deactivated it."""


class Tas(Section):
    """Topology-aware scheduling (kqueue's own section; Kueue has none)."""

    merge_duplicate_hostnames: bool = False
    """Nodes of one host name add up, instead of all but the first being left out: for load generators that reuse host
    names."""


class ObjectRetentionPolicies(Section):
    """How long objects are kept."""

    workloads: WorkloadRetention | None = None
