"""The nodes of the simulated cluster: parsed from `4x8x16` or a YAML file, checked, turned into blueprints.

A file lists the label keys of the levels (broadest first; the host name is always the last level and may be left out)
and the pools of nodes:

```yaml
levels:
  - cloud.provider.com/topology-block
  - cloud.provider.com/topology-rack
pools:
  - name: h100
    counts: [4, 8, 16]          # or 4x8x16: blocks, racks per block, hosts per rack
    labels: {gpu: h100}
    taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
    allocatable: {cpu: 96, memory: 1Ti, nvidia.com/gpu: 8, pods: 110}
  - name: cpu-only
    counts: [1, 2, 10]
    allocatable: {nvidia.com/gpu: 0}
```
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kqueue.documents import first_document
from kqueue.errors import ConfigError
from kqueue.kube.names import HOSTNAME_LABEL
from kqueue.kube.taints import Taint
from kqueue.sandbox.amount import amount

BLOCK_LABEL = "cloud.provider.com/topology-block"
RACK_LABEL = "cloud.provider.com/topology-rack"
POOL_LABEL = "cloud.provider.com/node-group"
"""On every simulated node: the name of its pool."""
DEFAULT_POOL = "default"
DEFAULT_LEVELS = (BLOCK_LABEL, RACK_LABEL, HOSTNAME_LABEL)
DEFAULT_ALLOCATABLE: Mapping[str, str] = {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8", "pods": "110"}
MAX_NODES = 100_000
"""Limit of nodes, above the size of any cluster, so that a mistyped number is refused."""
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

_SIZES = re.compile(r"\d+(?:[xX]\d+)*", re.ASCII)
_LABEL_KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,30}[a-z0-9])?")
_FORM = "write blocks x racks x hosts as in 4x8x16, or the path of a YAML file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Equal nodes.  `counts` has one number per level: domains per parent, and hosts last."""

    name: str
    counts: tuple[int, ...]
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Mapping[str, str]

    @property
    def size(self) -> int:
        """The number of nodes in the pool."""
        return math.prod(self.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBlueprint:
    """One node to create."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """The whole cluster: label keys of the levels, broadest first and the host name last, and the pools."""

    levels: tuple[str, ...]
    pools: tuple[Pool, ...]

    @property
    def size(self) -> int:
        """The number of all nodes."""
        return sum(pool.size for pool in self.pools)

    def blueprints(self) -> Iterator[NodeBlueprint]:
        """Yield every node, pool by pool, in the order of names within a pool.

        A domain's value is its path (`b0-r3`), zero padded so that texts sort as numbers; a node's name is the value
        of its last level (`b0-r3-h07`).  With several pools the pool's name comes first, so that names are unique.
        """
        letters = _letters(self.levels)
        for pool in self.pools:
            lead = [pool.name] if len(self.pools) > 1 else []
            widths = [len(str(count - 1)) for count in pool.counts]
            for indexes in itertools.product(*(range(count) for count in pool.counts)):
                parts = [f"{a}{i:0{w}}" for a, i, w in zip(letters, indexes, widths, strict=True)]
                values = ["-".join([*lead, *parts[: depth + 1]]) for depth in range(len(parts))]
                labels = {**pool.labels, POOL_LABEL: pool.name, **dict(zip(self.levels, values, strict=True))}
                yield NodeBlueprint(name=values[-1], labels=labels, taints=pool.taints, allocatable=pool.allocatable)


def parse_topology(text: str, *, allocatable: Mapping[str, str] = DEFAULT_ALLOCATABLE) -> ClusterSpec:
    """Parse the value of `--topology`.

    Args:
        text: `hosts`, `racks x hosts` or `blocks x racks x hosts` as in `4x8x16`, or the path of a YAML file.
        allocatable: resources of every node; a pool of a file changes single resources, 0 removes one.

    Raises:
        ConfigError: the text or a field of the file is wrong; the message names the field and the remedy.
    """
    text = text.strip()
    offered = _resources(allocatable, "allocatable", {})
    if _SIZES.fullmatch(text):
        return _from_sizes(text, offered)
    path = Path(text)
    if not path.is_file():
        raise ConfigError(f"topology {text!r} is neither a size nor a file: {_FORM}")
    return _from_file(path, offered)


def _from_sizes(text: str, allocatable: Mapping[str, str]) -> ClusterSpec:
    counts = _counts(text, f"topology {text}", None)
    if len(counts) > len(DEFAULT_LEVELS):
        raise ConfigError(f"topology {text} has {len(counts)} levels, and a size may have three: {_FORM}")
    pool = Pool(name=DEFAULT_POOL, counts=counts, labels={}, taints=(), allocatable=allocatable)
    return _checked_size(ClusterSpec(levels=DEFAULT_LEVELS[-len(counts) :], pools=(pool,)))


def _from_file(path: Path, allocatable: Mapping[str, str]) -> ClusterSpec:
    try:
        document = first_document(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"topology file {path} cannot be read: {reason}") from error
    try:
        return _from_document(document, allocatable)
    except ConfigError as error:
        raise ConfigError(f"topology file {path}: {error}") from error


def _from_document(document: Any, allocatable: Mapping[str, str]) -> ClusterSpec:
    fields = _fields(document, "the document", ("levels", "pools"))
    levels = _levels(fields.get("levels", list(DEFAULT_LEVELS)))
    written = fields.get("pools")
    if not isinstance(written, list) or not written:
        raise ConfigError("pools: write a list of at least one pool, as in `pools: [{name: gpu, counts: 4x8x16}]`")
    pools = tuple(_pool(entry, f"pools[{i}]", levels, allocatable) for i, entry in enumerate(written))
    names = [pool.name for pool in pools]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ConfigError(f"pools[{i}].name: {name!r} is used twice; give every pool its own name")
    return _checked_size(ClusterSpec(levels=levels, pools=pools))


def _checked_size(spec: ClusterSpec) -> ClusterSpec:
    if spec.size > MAX_NODES:
        raise ConfigError(f"the topology has {spec.size} nodes; make it at most {MAX_NODES}")
    return spec


def _levels(written: Any) -> tuple[str, ...]:
    if not isinstance(written, list) or not written:
        raise ConfigError("levels: write a list of node label keys, broadest first")
    for i, key in enumerate(written):
        if not isinstance(key, str) or not _LABEL_KEY.fullmatch(key):
            raise ConfigError(f"levels[{i}]: {key!r} is not a label key; write one such as {RACK_LABEL}")
        if key in written[:i]:
            raise ConfigError(f"levels[{i}]: {key} is listed twice; remove one")
        if key == HOSTNAME_LABEL and i != len(written) - 1:
            raise ConfigError(f"levels[{i}]: {HOSTNAME_LABEL} must be the last level")
        if key == POOL_LABEL:
            raise ConfigError(f"levels[{i}]: {POOL_LABEL} holds the name of the pool; choose another key")
    levels = tuple(written)
    return levels if levels[-1] == HOSTNAME_LABEL else (*levels, HOSTNAME_LABEL)


def _pool(written: Any, path: str, levels: tuple[str, ...], allocatable: Mapping[str, str]) -> Pool:
    fields = _fields(written, path, ("name", "counts", "labels", "taints", "allocatable"))
    name = fields.get("name", DEFAULT_POOL)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{path}.name: {name!r} must be lower-case letters, digits and dashes, at most 32")
    labels = _labels(fields.get("labels", {}), f"{path}.labels")
    for key in (*levels, POOL_LABEL):
        if key in labels:
            raise ConfigError(f"{path}.labels[{key}]: the sandbox sets this label itself; remove it")
    return Pool(
        name=name,
        counts=_counts(fields.get("counts"), f"{path}.counts", len(levels)),
        labels=labels,
        taints=_taints(fields.get("taints", []), f"{path}.taints"),
        allocatable=_resources(fields.get("allocatable", {}), f"{path}.allocatable", allocatable),
    )


def _counts(written: Any, path: str, wanted: int | None) -> tuple[int, ...]:
    if isinstance(written, str) and _SIZES.fullmatch(written):
        written = [int(part) for part in re.split("[xX]", written)]
    elif isinstance(written, int) and not isinstance(written, bool):
        written = [written]
    if not isinstance(written, list) or not written:
        raise ConfigError(f"{path}: write one number per level, as in [4, 8, 16] or 4x8x16")
    for count in written:
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_NODES:
            raise ConfigError(f"{path}: {count!r} must be a whole number from 1 to {MAX_NODES}")
    if wanted is not None and len(written) != wanted:
        raise ConfigError(f"{path}: has {len(written)} numbers and there are {wanted} levels (the last is the host)")
    return tuple(written)


def _labels(written: Any, path: str) -> dict[str, str]:
    if not isinstance(written, dict):
        raise ConfigError(f"{path}: write a map of label keys to texts")
    for key, value in written.items():
        if not isinstance(key, str) or not _LABEL_KEY.fullmatch(key):
            raise ConfigError(f"{path}: {key!r} is not a label key; use letters, digits, '-', '_', '.', and one '/'")
        if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
            raise ConfigError(f'{path}[{key}]: {value!r} is not a label value; write a quoted text such as "a100"')
    return dict(written)


def _taints(written: Any, path: str) -> tuple[Taint, ...]:
    if not isinstance(written, list):
        raise ConfigError(f"{path}: write a list such as [{{key: gpu, effect: NoSchedule}}]")
    taints = []
    for i, entry in enumerate(written):
        fields = _fields(entry, f"{path}[{i}]", ("key", "value", "effect"))
        value = fields.get("value", "")
        _labels({fields.get("key"): value}, f"{path}[{i}]")
        if fields.get("effect") not in EFFECTS:
            raise ConfigError(f"{path}[{i}].effect: {fields.get('effect')!r} must be one of {', '.join(EFFECTS)}")
        taints.append(Taint(key=fields["key"], value=value, effect=fields["effect"]))
    return tuple(taints)


def _resources(written: Any, path: str, defaults: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(written, Mapping):
        raise ConfigError(f"{path}: write a map of resource names to quantities, as in {{cpu: 96, memory: 1Ti}}")
    found = dict(defaults)
    for name, quantity in written.items():
        if not isinstance(name, str) or not _LABEL_KEY.fullmatch(name):
            raise ConfigError(f"{path}: {name!r} is not a resource name; write one such as cpu or nvidia.com/gpu")
        try:
            size = amount(quantity, name) if isinstance(quantity, str | int) else None
        except ValueError as error:
            raise ConfigError(f"{path}[{name}]: {error}") from error
        if size is None:
            raise ConfigError(f"{path}[{name}]: {quantity!r} is not a quantity; write a whole number or a quoted text")
        found[name] = str(quantity)
    return {name: quantity for name, quantity in found.items() if amount(quantity, name) > 0}


def _fields(written: Any, path: str, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(written, dict):
        raise ConfigError(f"{path}: write a map with the fields {', '.join(known)}")
    for key in written:
        if key not in known:
            raise ConfigError(f"{path}: {key!r} is no field here; known are {', '.join(known)}")
    return written


def _letters(levels: tuple[str, ...]) -> list[str]:
    """Return one short name per level: `b`, `r`, `h`; levels with the same letter get their whole last word."""
    words = [re.sub(r"[^a-z0-9]", "", re.split(r"[/_.-]", key.lower())[-1]) or "d" for key in levels]
    words[-1] = "host"
    firsts = [word[0] for word in words]
    return [first if firsts.count(first) == 1 else word for first, word in zip(firsts, words, strict=True)]
