"""Converts objects of the watches into values of the core.  Pure; invalid fields raise errors with their path."""

from __future__ import annotations

from kqueue.model.backfill import backfill_mode, backfill_problem, has_overrun
from kqueue.model.conditions import condition, condition_true, is_active, since
from kqueue.model.devices import (
    ClaimView,
    claim_view,
    device_class,
    device_requests,
    device_slice,
    may_need_devices,
    named_claims,
)
from kqueue.model.extras import base_key, extra_of, gang_level, near_base
from kqueue.model.gang_time import gang_since
from kqueue.model.holdings import admission, assignment, finished_places
from kqueue.model.joint import joint_policies, policy_specs, traits_of
from kqueue.model.least import least_amounts, least_of, least_text
from kqueue.model.neighbours import NO_RULES, neighbours
from kqueue.model.node_classes import class_request, class_taints, node_class
from kqueue.model.nodes import node_facts, node_rules, taint, toleration
from kqueue.model.order import DEFAULT_ORDER, QueueOrder, boost, closed_gates, never_preempts, priority, queue_time
from kqueue.model.pod_sets import ended_pods, is_together, pod_set, template_path, topology_request
from kqueue.model.pods import CustomOwner, ElasticPod, GangPod, PodView, UnboundPod, controller_of, pod_view
from kqueue.model.profiles import profile_name
from kqueue.model.quota_objects import (
    cohort_problem,
    flavor,
    inline_topology,
    plugin_profile,
    queue_spec,
    quotas,
    same_queue,
    weight,
)
from kqueue.model.resources import amounts, pod_resources, template_requests
from kqueue.model.run_limits import run_facts
from kqueue.model.run_times import promised_run_time
from kqueue.model.variants import parent_key
from kqueue.model.waiting import asked_for, head, pending
from kqueue.model.workloads import (
    HOLDS,
    WAITS,
    is_admitted,
    is_damaged_status,
    is_eviction_ended,
    is_over,
    is_owned_by_one_pod,
    is_ownerless_group,
    is_placed,
    is_queueable,
    local_queue_key,
    needs_domains,
    pods_key,
    replaced_key,
    runtime_classes,
    siblings_key,
    standing,
    taken_over_key,
    waits_for_domains,
    workload_key,
)

__all__ = [
    "DEFAULT_ORDER",
    "HOLDS",
    "NO_RULES",
    "WAITS",
    "ClaimView",
    "CustomOwner",
    "ElasticPod",
    "GangPod",
    "PodView",
    "QueueOrder",
    "UnboundPod",
    "admission",
    "amounts",
    "asked_for",
    "assignment",
    "backfill_mode",
    "backfill_problem",
    "base_key",
    "boost",
    "claim_view",
    "class_request",
    "class_taints",
    "closed_gates",
    "cohort_problem",
    "condition",
    "condition_true",
    "controller_of",
    "device_class",
    "device_requests",
    "device_slice",
    "ended_pods",
    "extra_of",
    "finished_places",
    "flavor",
    "gang_level",
    "gang_since",
    "has_overrun",
    "head",
    "inline_topology",
    "is_active",
    "is_admitted",
    "is_damaged_status",
    "is_eviction_ended",
    "is_over",
    "is_owned_by_one_pod",
    "is_ownerless_group",
    "is_placed",
    "is_queueable",
    "is_together",
    "joint_policies",
    "least_amounts",
    "least_of",
    "least_text",
    "local_queue_key",
    "may_need_devices",
    "named_claims",
    "near_base",
    "needs_domains",
    "neighbours",
    "never_preempts",
    "node_class",
    "node_facts",
    "node_rules",
    "parent_key",
    "pending",
    "plugin_profile",
    "pod_resources",
    "pod_set",
    "pod_view",
    "pods_key",
    "policy_specs",
    "priority",
    "profile_name",
    "promised_run_time",
    "queue_spec",
    "queue_time",
    "quotas",
    "replaced_key",
    "run_facts",
    "runtime_classes",
    "same_queue",
    "siblings_key",
    "since",
    "standing",
    "taint",
    "taken_over_key",
    "template_path",
    "template_requests",
    "toleration",
    "topology_request",
    "traits_of",
    "waits_for_domains",
    "weight",
    "workload_key",
]
