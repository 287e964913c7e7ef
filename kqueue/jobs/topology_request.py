"""Topology annotations of a pod template: read into a `topologyRequest`, and checked.

The names of the first design (`require-topology`, `prefer-topology`, on the template or on the job) are aliases: they
count only if the template has no present annotation that names a level.  Whether a level exists is unknown here,
because the flavor is; a missing level becomes a reason to wait.  Source: KEP-2724 and its first design.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.api import names
from kqueue.errors import FieldError
from kqueue.jobs import syntax
from kqueue.jobs.fields import JSON, annotations_of, bool_of, int_of
from kqueue.jobs.switches import JobFeatures

REQUIRED = names.REQUIRED_TOPOLOGY_ANNOTATION
PREFERRED = names.PREFERRED_TOPOLOGY_ANNOTATION
UNCONSTRAINED = names.UNCONSTRAINED_TOPOLOGY_ANNOTATION
SLICE_LEVEL = names.SLICE_REQUIRED_TOPOLOGY_ANNOTATION
SLICE_SIZE = names.SLICE_SIZE_ANNOTATION
LAYERS = names.SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS_ANNOTATION
GROUP = names.PODSET_GROUP_NAME_ANNOTATION
ALIASES = {
    names.REQUIRE_TOPOLOGY_ALIAS_ANNOTATION: REQUIRED,
    names.PREFER_TOPOLOGY_ALIAS_ANNOTATION: PREFERRED,
}
OFFSET = names.POD_INDEX_OFFSET_ANNOTATION
_OFFSET = re.compile(r"[+-]?[0-9]{1,9}")
_REQUESTS = frozenset({REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_LEVEL, LAYERS, GROUP})
LEVEL_MAX = 63
"""The largest length of a level in a request, by the schema of `topologyRequest`."""
GROUP_MAX = 256
LAYERS_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLabels:
    """The labels that number the pods of one kind; empty and None: the kind does not number its pods."""

    pod: str = ""
    sub_group: str = ""
    sub_groups: int | None = None


def marked(template: Mapping[str, Any]) -> bool:
    """Whether the template's pods are recognised as placed by topology."""
    return not names.TOPOLOGY_MARKER_ANNOTATIONS.isdisjoint(annotations_of(template))


def asks(template: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """Whether annotations of the template, or an alias that it inherits, request a placement."""
    return not _REQUESTS.isdisjoint(effective(template, job))


def effective(template: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, str]:
    """Return the template's annotations with an alias, if one counts, under its present name."""
    own = annotations_of(template)
    if marked(template):
        return own
    for source in (own, annotations_of(job)):
        for alias, modern in ALIASES.items():
            if alias in source:
                return {**own, modern: source[alias]}
    return own


def levels(template: Mapping[str, Any], job: Mapping[str, Any]) -> Iterator[str]:
    """Yield the levels that the annotations name; invalid annotations are left out, and `auto` names no level."""
    wanted = effective(template, job)
    for key in (REQUIRED, PREFERRED, SLICE_LEVEL):
        if key in wanted and (key, wanted[key]) != (PREFERRED, names.AUTO_TOPOLOGY):
            yield wanted[key]
    layers = _layers(wanted[LAYERS]) if LAYERS in wanted else []
    if isinstance(layers, list):
        yield from (layer["topology"] for layer in layers)


def topology_request(
    template: Mapping[str, Any], job: Mapping[str, Any], *, index: IndexLabels, switches: JobFeatures
) -> JSON | None:
    """Return the `topologyRequest` of the annotations; None: neither they nor the kind request any.

    A kind that numbers its pods always has a request, because the numbers matter wherever the pods are placed. The
    annotations must have no `problems`; invalid ones are left out.
    """
    if not switches.topology:
        return None
    wanted = effective(template, job)
    request = _main_part(wanted) | _slices(wanted, switches)
    if index.pod:
        request["podIndexLabel"] = index.pod
    if index.sub_group:
        request["subGroupIndexLabel"] = index.sub_group
    if index.sub_groups is not None:
        request["subGroupCount"] = index.sub_groups
    if GROUP in wanted and ("required" in request or "preferred" in request):
        request["podSetGroupName"] = wanted[GROUP]
    return request or None


def marker_for(request: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotation (one entry) that marks pods of `request` if their template has none.

    Required and preferred under their present names, any other request as unconstrained.
    """
    for field, annotation in (("required", REQUIRED), ("preferred", PREFERRED)):
        if request.get(field):
            return {annotation: str(request[field])}
    return {UNCONSTRAINED: "true"}


def problems(
    template: Mapping[str, Any],
    job: Mapping[str, Any],
    *,
    path: str,
    count: int | None,
    switches: JobFeatures,
    elastic: bool = False,
) -> Iterator[FieldError]:
    """Yield mistakes in the topology annotations of one template, and in the aliases that it may inherit.

    `path` is the path of the template, as in `spec.template`; `count` the pods of its pod set; None: sizes are not
    compared with the count, because kqueue may have written it.
    """
    if not switches.topology:
        return
    at = f"{path}.metadata.annotations"
    own = annotations_of(template)
    yield from _alias_problems(own, at)
    yield from _main_problems(own, at)
    yield from _group_problems(own, effective(template, job), at)
    yield from _offset_problems(own, at)
    yield from _slice_problems(own, at, count=count, switches=switches)
    yield from _layer_problems(own, at, count=count, switches=switches)
    wanted = effective(template, job)
    if elastic and (REQUIRED in wanted or PREFERRED in wanted):
        yield FieldError(at, "an elastic job supports only an unconstrained topology; remove the level")
    elif elastic and count is not None and not switches.elastic_topology and _REQUESTS.intersection(wanted) - {GROUP}:
        problem = "an elastic job may ask for a topology only with feature gate ElasticJobsViaWorkloadSlicesWithTAS"
        yield FieldError(at, f"{problem}; remove the annotation or switch the gate on")


def job_problems(job: Mapping[str, Any], switches: JobFeatures) -> Iterator[FieldError]:
    """Yield mistakes in the aliases on the job object itself."""
    if switches.topology:
        yield from _alias_problems(annotations_of(job), "metadata.annotations")


def warnings(template: Mapping[str, Any], job: Mapping[str, Any], *, path: str) -> Iterator[str]:
    """Yield warnings about allowed annotations that have no effect, or another effect than expected."""
    own = annotations_of(template)
    for source, where in ((own, f"{path}.metadata"), (annotations_of(job), "metadata")):
        for alias, modern in ALIASES.items():
            if alias in source and effective(template, job).get(modern) != source[alias]:
                yield f"{where}.annotations[{alias}] is ignored: a closer or newer topology annotation says otherwise"
    if UNCONSTRAINED in own and bool_of(own[UNCONSTRAINED]) is False:
        yield (
            f"{path}.metadata.annotations[{UNCONSTRAINED}] is false: this asks for a topology without naming one, "
            "and no flavor will do; remove the annotation or set it to true"
        )


def _main_part(wanted: Mapping[str, str]) -> JSON:
    if REQUIRED in wanted:
        return {"required": wanted[REQUIRED]}
    if PREFERRED in wanted:
        return {"preferred": wanted[PREFERRED]}
    unconstrained = bool_of(wanted.get(UNCONSTRAINED, ""))
    return {} if unconstrained is None else {"unconstrained": unconstrained}


def _slices(wanted: Mapping[str, str], switches: JobFeatures) -> JSON:
    if switches.multi_layer and LAYERS in wanted:
        layers = _layers(wanted[LAYERS])
        if isinstance(layers, list):
            return {"podsetSliceRequiredTopologyConstraints": layers}
    size = int_of(wanted.get(SLICE_SIZE, ""))
    if SLICE_LEVEL in wanted and size is not None:
        return {"podSetSliceRequiredTopology": wanted[SLICE_LEVEL], "podSetSliceSize": size}
    return {}


def _level_problems(own: Mapping[str, str], key: str, at: str) -> Iterator[FieldError]:
    if key not in own:
        return
    path = syntax.entry_path(at, key)
    yield from syntax.check(syntax.label_key, own[key], path)
    if len(own[key]) > LEVEL_MAX:
        yield FieldError(path, f"names a level of {len(own[key])} characters, at most {LEVEL_MAX} are possible")


def _alias_problems(own: Mapping[str, str], at: str) -> Iterator[FieldError]:
    if all(alias in own for alias in ALIASES):
        yield FieldError(at, f"{' and '.join(ALIASES)} exclude each other; keep one")
    for alias in ALIASES:
        yield from _level_problems(own, alias, at)


def _main_problems(own: Mapping[str, str], at: str) -> Iterator[FieldError]:
    given = [key for key in (REQUIRED, PREFERRED, UNCONSTRAINED) if key in own]
    if len(given) > 1:
        yield FieldError(at, f"{' and '.join(given)} exclude each other; keep one")
    for key in (REQUIRED, PREFERRED):
        yield from _level_problems(own, key, at)
    if UNCONSTRAINED in own and bool_of(own[UNCONSTRAINED]) is None:
        yield FieldError(syntax.entry_path(at, UNCONSTRAINED), 'must be "true" or "false"', own[UNCONSTRAINED])


def _offset_problems(own: Mapping[str, str], at: str) -> Iterator[FieldError]:
    """Yield a mistake in the index offset: pods with an invalid offset would be admitted and then wait forever at their
    gate.
    """
    written = own.get(OFFSET)
    if written is not None and index_offset(written) is None:
        yield FieldError(syntax.entry_path(at, OFFSET), "must be an integer of at most 9 digits", written)


def index_offset(written: str) -> int | None:
    """Return the first rank in an index offset; None: the text is not an integer of at most 9 digits."""
    return int(written) if _OFFSET.fullmatch(written) else None


def _group_problems(own: Mapping[str, str], wanted: Mapping[str, str], at: str) -> Iterator[FieldError]:
    group = own.get(GROUP)
    if group is None:
        return
    path = syntax.entry_path(at, GROUP)
    if group.isascii() and group.isdigit():
        yield FieldError(path, "must not be a number; begin the name with a letter", group)
    if not 0 < len(group) <= GROUP_MAX:
        yield FieldError(path, f"must have 1 to {GROUP_MAX} characters, has {len(group)}")
    clashes = [key for key in (SLICE_LEVEL, SLICE_SIZE, LAYERS) if key in own]
    if clashes:
        yield FieldError(path, f"cannot be used together with {' and '.join(clashes)}; remove one side")
    if REQUIRED not in wanted and PREFERRED not in wanted:
        yield FieldError(path, f"needs {REQUIRED} or {PREFERRED} beside it")


def _slice_problems(
    own: Mapping[str, str], at: str, *, count: int | None, switches: JobFeatures
) -> Iterator[FieldError]:
    yield from _level_problems(own, SLICE_LEVEL, at)
    if LAYERS in own:
        return  # the clash is reported with the layers
    if SLICE_LEVEL in own and SLICE_SIZE not in own:
        yield FieldError(syntax.entry_path(at, SLICE_LEVEL), f"needs {SLICE_SIZE} beside it")
    if SLICE_SIZE not in own:
        return
    path = syntax.entry_path(at, SLICE_SIZE)
    if SLICE_LEVEL not in own:
        yield FieldError(path, f"needs {SLICE_LEVEL} beside it")
    size = int_of(own[SLICE_SIZE])
    if size is None or size < 1:
        yield FieldError(path, "must be a whole number of pods, 1 or more", own[SLICE_SIZE])
    else:
        yield from _size_problems(size, path, count=count, switches=switches)


def _size_problems(size: int, path: str, *, count: int | None, switches: JobFeatures) -> Iterator[FieldError]:
    if count is None:
        return
    if size > count:
        yield FieldError(path, f"must not be larger than the {count} pods of the pod set", size)
    elif switches.slice_divisibility and count % size:
        yield FieldError(
            path, f"must divide the {count} pods of the pod set; {count % size} of them would never start", size
        )


def _layer_problems(
    own: Mapping[str, str], at: str, *, count: int | None, switches: JobFeatures
) -> Iterator[FieldError]:
    if LAYERS not in own:
        return
    path = syntax.entry_path(at, LAYERS)
    if not switches.multi_layer:
        yield FieldError(path, "is switched off here (TASMultiLayerTopology); use slice level and slice size instead")
    clashes = [key for key in (SLICE_LEVEL, SLICE_SIZE) if key in own]
    if clashes:
        yield FieldError(path, f"cannot be used together with {' and '.join(clashes)}; remove one side")
    layers = _layers(own[LAYERS])
    if isinstance(layers, str):
        yield FieldError(path, layers, own[LAYERS])
        return
    yield from _layer_list_problems(layers, path)
    yield from _size_problems(layers[0]["size"], path, count=count, switches=switches)


def _layer_list_problems(layers: Sequence[JSON], path: str) -> Iterator[FieldError]:
    levels = [layer["topology"] for layer in layers]
    for level in levels:
        yield from syntax.check(syntax.label_key, level, path)
        if len(level) > LEVEL_MAX:
            yield FieldError(path, f"names a level of {len(level)} characters, at most {LEVEL_MAX} are possible")
    if len(set(levels)) < len(levels):
        yield FieldError(path, "names a level twice; every layer needs its own")
    for outer, inner in itertools.pairwise(layer["size"] for layer in layers):
        if outer % inner:
            yield FieldError(path, f"size {outer} must be a multiple of the next layer's size {inner}")


def _layers(written: str) -> list[JSON] | str:
    """Return slice layers, coarse to fine; one sentence instead if the text is not a list of layers."""
    try:
        entries = json.loads(written)
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, list) or not 1 <= len(entries) <= LAYERS_MAX:
        return f'must be a JSON list of 1 to {LAYERS_MAX} entries like {{"topology": "<level label>", "size": 4}}'
    layers: list[JSON] = []
    for entry in entries:
        level = entry.get("topology") if isinstance(entry, dict) else None
        size = entry.get("size") if isinstance(entry, dict) else None
        if not isinstance(level, str):
            return "every entry needs a text `topology`, the level's label"
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size < 1 << 31:
            return "every entry needs a whole number `size`, 1 or more"
        layers.append({"topology": level, "size": size})
    return layers
