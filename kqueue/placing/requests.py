"""Reads the request of a document: algorithm, workload, pod sets and the form of the answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kqueue.core.topology import (
    HOSTNAME,
    Algorithm,
    NodeRules,
    NodeTerm,
    PodSetRequest,
    Profile,
    SliceLayer,
    Toleration,
    TopologyRequest,
    WeightedTerm,
)
from kqueue.core.topology.placers import JOINT, PLACERS
from kqueue.core.topology.together import kin_of
from kqueue.placing.document import pointer
from kqueue.placing.fields import FieldProblem, Fields, Problems
from kqueue.placing.parts import assignment, node_affinity, quantities, tolerations
from kqueue.placing.values import AskedPodSet, OutputOptions, Places, Switches

_PROFILES = ("BestFit", "LeastFreeCapacity", "balanced", "optimal")
"""Profiles of kqueue; installed packages add others."""
_UNCONSTRAINED_PROFILES = ("LeastFreeCapacity", "BestFit")
_MOST_LAYERS = 3
_SEARCH_LIMIT = 1_000_000
"""Limit of the steps of a search; high, because no other work waits in this command."""
_POD_SET = (
    "name",
    "count",
    "requests",
    "topologyRequest",
    "groupName",
    "implied",
    "tolerations",
    "nodeSelector",
    "nodeAffinity",
    "updates",
    "assignment",
    "previousAssignment",
)
_MODES = ("required", "preferred", "unconstrained")
_INDEX_TEXTS = ("podIndexLabel", "subGroupIndexLabel")
_REQUEST = (
    "required",
    "preferred",
    "unconstrained",
    "podSetSliceRequiredTopology",
    "podSetSliceSize",
    "podsetSliceRequiredTopologyConstraints",
    "podSetGroupName",
    *_INDEX_TEXTS,
    "subGroupCount",
)


def switches(problems: Problems, document: Fields) -> Switches:
    """Read the profile and the switches of a placement."""
    fields = problems.fields(
        document.value("algorithm", {}),
        document.path("algorithm"),
        (
            "profile",
            "unconstrainedProfile",
            "preferredNodeAffinity",
            "overlappingFlavors",
            "skipPodOwned",
            "elasticSlices",
            "simulateEmpty",
            "duplicateHostnames",
            "searchLimit",
        ),
    )
    profile = fields.choice("profile", profiles(), Algorithm.BEST_FIT)
    unconstrained = fields.choice("unconstrainedProfile", _UNCONSTRAINED_PROFILES, "LeastFreeCapacity")
    return Switches(
        profile=Profile(
            constrained=profile,
            unconstrained=Algorithm(unconstrained),
            preferred_affinity=fields.flag("preferredNodeAffinity"),
            search_limit=fields.integer("searchLimit", _SEARCH_LIMIT, least=0),
        ),
        overlapping_flavors=fields.flag("overlappingFlavors", True),
        skip_pod_owned=fields.flag("skipPodOwned", True),
        elastic_slices=fields.flag("elasticSlices"),
        simulate_empty=fields.flag("simulateEmpty"),
        duplicate_hostnames=fields.choice("duplicateHostnames", ("error", "drop", "merge"), "error"),
    )


def profiles() -> tuple[str, ...]:
    """Return the ways to choose domains; whether workloads are planned together depends on the form of the document."""
    return (*_PROFILES, *sorted(PLACERS.keys() - {*_PROFILES, JOINT}))


def workload(problems: Problems, document: Fields, levels: Sequence[str]) -> tuple[tuple[str, ...], bool, bool]:
    """Return failed nodes, whether a single pod owns the workload, and whether pod sets share a level."""
    fields = problems.fields(
        document.value("workload", {}), document.path("workload"), ("unhealthyNodes", "ownedBySinglePod", "together")
    )
    unhealthy = fields.texts("unhealthyNodes")
    if unhealthy and levels and levels[-1] != HOSTNAME:
        problems.add(
            fields.path("unhealthyNodes"),
            f"nodes can be replaced only where {HOSTNAME} is the last level: add it, or list no unhealthy nodes",
        )
    return unhealthy, fields.flag("ownedBySinglePod"), fields.flag("together")


def output_options(problems: Problems, document: Fields) -> OutputOptions:
    """Read the form of the answer."""
    fields = problems.fields(
        document.value("output", {}), document.path("output"), ("paths", "encoding", "quality", "remaining")
    )
    return OutputOptions(
        paths=fields.flag("paths"),
        encoding=fields.choice("encoding", ("none", "v1beta2", "v1beta1"), "none"),
        quality=fields.flag("quality"),
        remaining=fields.flag("remaining"),
    )


def pod_sets(problems: Problems, document: Fields, levels: Sequence[str], *, together: bool) -> tuple[AskedPodSet, ...]:
    """Return all pod sets in the order of placement. `levels` are the levels of the topology, empty if unknown;
    `together`: one domain of the level that they share is for all.
    """
    document.require("podSets", "a list of pod sets")
    written = written_levels(levels)
    found = []
    seen: set[str] = set()
    for path, item in document.items("podSets"):
        pod_set = _pod_set(problems, path, item, written)
        name = pod_set.request.name
        if name in seen and isinstance(item, dict) and item.get("name", "") == name:
            called = f"of the name {name}" if name else "without a name"
            problems.add(f"{path}/name", f"there is another pod set {called}: give each its own")
        seen.add(name)
        found.append(replace(pod_set, request=replace(pod_set.request, together=True)) if together else pod_set)
    if together and kin_of({"": [pod_set.request for pod_set in found]}) is None:
        problems.remark(
            pointer(document.path("workload"), "together"),
            "no two pod sets ask for the same required or preferred level, so it has no effect",
        )
    return tuple(found)


def written_levels(levels: Sequence[str]) -> Sequence[str]:
    """Return the levels for which assignments have values."""
    return levels[-1:] if levels and levels[-1] == HOSTNAME else levels


def _pod_set(problems: Problems, path: str, item: Any, written: Sequence[str]) -> AskedPodSet:
    fields = problems.fields(item, path, _POD_SET)
    fields.require("count", "the number of pods")
    topology, group, layers = _topology_request(problems, fields)
    own = fields.optional_text("groupName")
    if own is not None and group is not None and own != group:
        problems.add(
            fields.path("groupName"), f"the topologyRequest says group {group!r}: say the same here, or leave one out"
        )
    required: tuple[NodeTerm, ...] | None = None
    preferred: tuple[WeightedTerm, ...] = ()
    if fields.has("nodeAffinity"):
        required, preferred = node_affinity(problems, fields.value("nodeAffinity"), fields.path("nodeAffinity"))
    selector, where, added, conflict = _merged(problems, fields)
    request = PodSetRequest(
        name=fields.text("name"),
        count=fields.integer("count", 0, least=0),
        requests=quantities(problems, fields, "requests"),
        topology=topology,
        group=group if own is None else own,
        rules=NodeRules(
            selector=tuple(sorted(selector.items())),
            required=required,
            tolerations=(*tolerations(problems, fields, "tolerations"), *added),
            preferred=preferred,
        ),
    )
    old, previous = (
        assignment(problems, fields.value(key), fields.path(key), written) if fields.has(key) else None
        for key in ("assignment", "previousAssignment")
    )
    named = fields.path("groupName") if own is not None else pointer(fields.path("topologyRequest"), "podSetGroupName")
    places = Places(pod_set=path, group=path if request.group is None else named, layers=layers, selector=where)
    return AskedPodSet(request=request, places=places, conflict=conflict, assignment=old, previous=previous)


_Layers = tuple[tuple[str, str], ...]
"""Pointers of level and size, per slice layer."""


def _topology_request(problems: Problems, pod_set: Fields) -> tuple[TopologyRequest, str | None, _Layers]:
    """Return the request, its group, and the JSON pointers of its slice layers."""
    value = pod_set.value("topologyRequest")
    fields = problems.fields({} if value is None else value, pod_set.path("topologyRequest"), _REQUEST)
    required, preferred = fields.optional_text("required"), fields.optional_text("preferred")
    unconstrained = fields.flag("unconstrained") if fields.has("unconstrained") else None
    strongest, *others = [key for key in _MODES if fields.has(key) and fields.value(key) is not False] or [""]
    for key in others:
        problems.remark(fields.path(key), f"{strongest} is set, too, and decides the level; keep one of them")
    slices, layers = _slices(problems, fields)
    for key in _INDEX_TEXTS:
        fields.optional_text(key)
    if fields.has("subGroupCount"):
        fields.integer("subGroupCount", 0, least=0)
    explicit = unconstrained is not None or any(
        (required is not None, preferred is not None, slices, fields.has("podSetSliceSize"))
    )
    request = TopologyRequest(
        required=required,
        preferred=preferred,
        unconstrained=unconstrained,
        implied=pod_set.flag("implied", not explicit),
        slices=slices,
    )
    return request, fields.optional_text("podSetGroupName"), layers


def _slices(problems: Problems, fields: Fields) -> tuple[tuple[SliceLayer, ...], _Layers]:
    """Return slice layers from coarse to fine with their pointers: the list if it has entries, else the older pair."""
    layers = []
    places = []
    key = "podsetSliceRequiredTopologyConstraints"
    for path, item in fields.items(key) if fields.has(key) else ():
        entry = problems.fields(item, path, ("topology", "size"))
        entry.require("topology", "a level")
        entry.require("size", "the number of pods of a slice")
        layers.append(SliceLayer(entry.text("topology"), entry.integer("size", 1, least=1)))
        places.append((entry.path("topology"), entry.path("size")))
    if len(layers) > _MOST_LAYERS:
        problems.add(fields.path(key), f"expected at most {_MOST_LAYERS} slice layers, found {len(layers)}")
    level = fields.optional_text("podSetSliceRequiredTopology")
    size = fields.integer("podSetSliceSize", 0, least=0) if fields.has("podSetSliceSize") else 0
    pair = "podSetSliceRequiredTopology", "podSetSliceSize"
    if layers:
        for without_effect in filter(fields.has, pair):
            problems.remark(fields.path(without_effect), f"{key} is set, too, and is used; keep one of them")
    elif level is not None:
        layers.append(SliceLayer(level, size))
        places.append((fields.path(pair[0]), fields.path(pair[1])))
    elif fields.has(pair[1]):
        problems.remark(
            fields.path(pair[1]), f"without {pair[0]} there are no slices; name their level, or drop the size"
        )
    return tuple(layers), tuple(places)


_Part = tuple[str, Mapping[str, str]]
"""A map of texts with its pointer."""


def _merged(
    problems: Problems, fields: Fields
) -> tuple[dict[str, str], dict[str, str], tuple[Toleration, ...], FieldProblem | None]:
    """Return the node selector merged with the updates, the JSON pointer of each key, the tolerations that updates add,
    and the first conflict.
    """
    selectors: list[_Part] = [(fields.path("nodeSelector"), fields.labels("nodeSelector"))]
    labels: list[_Part] = []
    annotations: list[_Part] = []
    added: list[Toleration] = []
    for path, item in fields.items("updates"):
        update = problems.fields(item, path, ("nodeSelector", "tolerations", "labels", "annotations"))
        for key, parts in (("nodeSelector", selectors), ("labels", labels), ("annotations", annotations)):
            parts.append((update.path(key), update.labels(key)))
        added += tolerations(problems, update, "tolerations")
    conflict = (
        _conflict("node selector", selectors) or _conflict("label", labels) or _conflict("annotation", annotations)
    )
    selector = {key: value for _, part in selectors for key, value in part.items()}
    places = {key: pointer(path, key) for path, part in selectors for key in part}
    return selector, places, tuple(added), conflict


def _conflict(what: str, parts: Iterable[_Part]) -> FieldProblem | None:
    """Return the first key that has different values in two parts, with the JSON pointer of the second value."""
    values: dict[str, list[tuple[str, str]]] = {}
    for path, part in parts:
        for key, value in part.items():
            given = values.setdefault(key, [])
            if not given or (len(given) == 1 and given[0][1] != value):
                given.append((pointer(path, key), value))
    for key, given in values.items():
        if len(given) > 1:
            (_, first), (path, second) = given[:2]
            return FieldProblem(path, f"the updates give {what} {key} two values, {first!r} and {second!r}")
    return None
