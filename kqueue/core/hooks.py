"""The plugins of one profile, asked in the order of the configuration.

A plugin that fails either keeps the workload waiting (PluginError) or counts as if it agreed: `Asking` decides.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from kqueue.core.decision import Admit
from kqueue.core.plugins import (
    AGREED,
    AfterReleasePlugin,
    Approve,
    BeforeReleasePlugin,
    Deny,
    Permission,
    PermitPlugin,
    Plugin,
    PodRef,
    Point,
    RankPlugin,
    ReleasePatch,
    ReleasePlugin,
    ReservePlugin,
    ScorePlugin,
    ScreenPlugin,
    Verdict,
    VetoPlugin,
    WaitFor,
)
from kqueue.core.preemption import Target
from kqueue.core.topology import NodeFacts, PodSetRequest, Tree
from kqueue.core.workload import Admission, Flavor, Head, PodSet
from kqueue.errors import PluginError
from kqueue.isolation import isolated

T = TypeVar("T")


class Asking(Protocol):
    """Calls a method of a plugin."""

    def __call__(self, plugin: str, point: Point, agreed: T, question: Callable[..., T], *about: Any) -> T:
        """Return the answer to a question about these values.

        Where the plugin fails: `agreed` if its failures are ignored, else raises PluginError.
        """
        ...


class AskingAsync(Protocol):
    """Calls an async method of a plugin."""

    async def __call__(
        self, plugin: str, point: Point, agreed: T, question: Callable[..., Awaitable[T]], *about: Any
    ) -> T:
        """Return the answer, as `Asking` does."""
        ...


def ask_plainly(plugin: str, point: Point, agreed: T, question: Callable[..., T], *about: Any) -> T:
    """Ask without a limit of time; each failure is raised as PluginError."""
    del point, agreed
    with isolated() as call:
        return question(*about)
    raise failure(plugin, call.error) from call.error


async def ask_async_plainly(
    plugin: str, point: Point, agreed: T, question: Callable[..., Awaitable[T]], *about: Any
) -> T:
    """Await an answer without a limit of time; each failure is raised as PluginError."""
    del point, agreed
    with isolated() as call:
        return await question(*about)
    raise failure(plugin, call.error) from call.error


def failure(plugin: str, error: Exception | None) -> PluginError:
    """Return the failure of a plugin as an error of ours."""
    return PluginError(f"plugin {plugin} failed: {type(error).__name__}: {error}")


class PluginRefusal(NamedTuple):
    """Why a plugin does not agree."""

    plugin: str
    reason: str

    def __str__(self) -> str:
        return f"plugin {self.plugin}: {self.reason}"


def _checked(kind: type[T], answer: object) -> T:
    if not isinstance(answer, kind):
        raise TypeError(f"the answer is {type(answer).__name__}, not {kind.__name__}")
    return answer


_MOST_FORMS, _MOST_TREES = 256, 16
"""Forms of pods, and topologies of each, whose refused hosts are remembered; then the oldest is forgotten."""

_FormKey = tuple[str, int, int, int]
RefusedHosts = tuple[tuple[str, str], ...]
"""Sorted names of hosts, each with the reason."""


@dataclass(slots=True)
class _Form:
    """The answers for pods of one form.  It is found by identity, so `pod_set` keeps its parts alive."""

    pod_set: PodSet
    judged: dict[str, tuple[NodeFacts, PluginRefusal | None]] = field(default_factory=dict)
    hosts: dict[int, tuple[Tree, RefusedHosts]] = field(default_factory=dict)


class NodeMasks:
    """The hosts that plugins refuse to pod sets; plugins judge each version of a node once."""

    def __init__(self) -> None:
        self._of: dict[_FormKey, _Form] = {}

    def refused(
        self, pod_set: PodSet, tree: Tree, judge: Callable[[PodSet, NodeFacts], PluginRefusal | None]
    ) -> RefusedHosts:
        """Return the refused hosts of a topology whose lowest level is the host."""
        key = pod_set.name, id(pod_set.quota_requests), id(pod_set.request.requests), id(pod_set.request.rules)
        form = self._of.get(key)
        if form is None:
            _make_room(self._of, _MOST_FORMS)
            form = self._of[key] = _Form(pod_set)
        known = form.hosts.get(id(tree))
        if known is None:
            _make_room(form.hosts, _MOST_TREES)
            known = form.hosts[id(tree)] = tree, _judged(form, tree, judge)
        return known[1]


def _make_room(kept: dict[Any, Any], most: int) -> None:
    if len(kept) >= most:
        del kept[next(iter(kept))]


def _judged(form: _Form, tree: Tree, judge: Callable[[PodSet, NodeFacts], PluginRefusal | None]) -> RefusedHosts:
    if len(form.judged) > 2 * len(tree) + 64:  # nodes of other trees, and nodes that are gone
        form.judged.clear()
    refused: list[tuple[str, str]] = []
    for leaf in tree.leaves:
        for node in leaf.nodes:
            known = form.judged.get(node.name)
            if known is None or known[0] is not node:
                known = form.judged[node.name] = node, judge(form.pod_set, node)
            if known[1] is not None:
                refused.append((leaf.path[-1], str(known[1])))
    return tuple(sorted(refused))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileHooks:
    """The plugins of one profile by point; points without plugins cost nothing."""

    asking: Asking = ask_plainly
    asking_async: AskingAsync = ask_async_plainly
    screens: tuple[ScreenPlugin, ...] = ()
    filters: tuple[Plugin, ...] = ()
    victims: tuple[Plugin, ...] = ()
    scores: tuple[ScorePlugin, ...] = ()
    reserves: tuple[ReservePlugin, ...] = ()
    before_releases: tuple[BeforeReleasePlugin, ...] = ()
    releases: tuple[ReleasePlugin, ...] = ()
    after_releases: tuple[AfterReleasePlugin, ...] = ()
    masks: NodeMasks = field(default_factory=NodeMasks, compare=False)

    # --- screen

    def screened(self, head: Head) -> PluginRefusal | None:
        """Return the first refusal to try a workload; None: all agree."""
        for plugin in self.screens:
            verdict = self.asking(plugin.name, Point.SCREEN, AGREED, _verdict, plugin.screen, head)
            if not verdict.ok:
                return PluginRefusal(plugin.name, verdict.reason)
        return None

    # --- filter

    def refused_flavor(self, pod_sets: Iterable[PodSet], flavor: Flavor) -> PluginRefusal | None:
        """Return the first refusal of a flavor to one of these pod sets; None: all agree."""
        for plugin in _with(self.filters, "allows_flavor"):
            for pod_set in pod_sets:
                reason = self._text(plugin, "allows_flavor", pod_set, flavor)
                if reason:
                    return PluginRefusal(plugin.name, reason)
        return None

    def without_refused(self, request: PodSetRequest, pod_set: PodSet, tree: Tree) -> PodSetRequest:
        """Return the request of a pod set without the nodes that a plugin refuses to it.

        Only a topology whose lowest level is the host has places of single nodes; other requests stay as they are.
        """
        hosts = self.refused_hosts(pod_set, tree) if tree.is_hostname else ()
        return replace(request, rules=replace(request.rules, refused=hosts)) if hosts else request

    def refused_hosts(self, pod_set: PodSet, tree: Tree) -> RefusedHosts:
        """Return the hosts that plugins refuse to a pod set, in a topology whose lowest level is the host."""
        return self.masks.refused(pod_set, tree, self._refused_node)

    def _refused_node(self, pod_set: PodSet, node: NodeFacts) -> PluginRefusal | None:
        for plugin in _with(self.filters, "allows_node"):
            reason = self._text(plugin, "allows_node", pod_set, node)
            if reason:
                return PluginRefusal(plugin.name, reason)
        return None

    def _text(self, plugin: Plugin, method: str, pod_set: PodSet, about: Flavor | NodeFacts) -> str:
        return self.asking(plugin.name, Point.FILTER, "", _text, getattr(plugin, method), pod_set, about)

    @property
    def filters_flavors(self) -> bool:
        """Whether a plugin judges flavors or nodes."""
        return bool(self.filters)

    @property
    def filters_nodes(self) -> bool:
        """Whether a plugin judges nodes."""
        return any(True for _ in _with(self.filters, "allows_node"))

    # --- victims

    def vetoed(self, head: Head, targets: Sequence[Target]) -> dict[str, str]:
        """Return the UIDs of the targets that must stay, each with a plugin that says so; targets that leave already do
        not count.
        """
        targets = [target for target in targets if not target.admitted.evicted]
        known, stay, nothing = {target.admitted.uid for target in targets}, dict[str, str](), frozenset[str]()
        for plugin in _with(self.victims, "veto"):
            vetoing: VetoPlugin = cast("VetoPlugin", plugin)
            veto = vetoing.veto
            for uid in self.asking(plugin.name, Point.VICTIMS, nothing, _uids, veto, head, targets) & known:
                stay.setdefault(uid, plugin.name)
        return stay

    @property
    def vetoes(self) -> bool:
        """Whether a plugin protects workloads."""
        return any(True for _ in _with(self.victims, "veto"))

    def ranked(self, head: Head, targets: Sequence[Target]) -> tuple[Any, ...]:
        """Return the sort key of a set of targets: the keys of all plugins, the first plugin first."""
        found: list[Any] = []
        for plugin in _with(self.victims, "rank"):
            ranking: RankPlugin = cast("RankPlugin", plugin)
            found.append(self.asking(plugin.name, Point.VICTIMS, (), _rank, ranking.rank, head, targets))
        return tuple(found)

    @property
    def ranks(self) -> bool:
        """Whether a plugin compares sets of targets."""
        return any(True for _ in _with(self.victims, "rank"))

    # --- score

    def scored(self, head: Head, flavors: Mapping[str, Flavor]) -> dict[str, int]:
        """Return the scores of flavors by their names, those of all plugins added."""
        total = dict.fromkeys(flavors, 0)
        for plugin in self.scores:
            nothing: Mapping[str, int] = {}
            answer = self.asking(plugin.name, Point.SCORE, nothing, _scores, plugin, head, flavors)
            for name, score in answer.items():
                total[name] += score
        return total

    @property
    def prefers_flavors(self) -> bool:
        """Whether a plugin scores flavors."""
        return bool(self.scores)

    # --- reserve

    def reserved(self, admit: Admit) -> Reservation:
        """Ask the plugins to take in a decision, until one refuses or fails."""
        called: list[ReservePlugin] = []
        for plugin in self.reserves:
            called.append(plugin)
            with isolated() as call:
                verdict = self.asking(plugin.name, Point.RESERVE, AGREED, _verdict, plugin.reserve, admit)
                if not verdict.ok:
                    return Reservation(self.asking, admit, called, str(PluginRefusal(plugin.name, verdict.reason)))
            if call.error is not None:
                return Reservation(self.asking, admit, called, str(call.error))
        return Reservation(self.asking, admit, called)

    # --- release

    async def refused_release(self, key: str, admission: Admission) -> PluginRefusal | None:
        """Return the first refusal to release the pods of a workload; None: all agree.  Raises PluginError."""
        for plugin in self.before_releases:
            prepare, point = plugin.before_release, Point.BEFORE_RELEASE
            verdict = await self.asking_async(plugin.name, point, AGREED, _verdict_later, prepare, key, admission)
            if not verdict.ok:
                return PluginRefusal(plugin.name, verdict.reason)
        return None

    async def is_released(self, pod: PodRef, patch: ReleasePatch) -> bool:
        """Return whether a plugin has released the pod; the first one that has ends the calls.  Raises PluginError."""
        for plugin in self.releases:
            release, point = plugin.release, Point.RELEASE
            if await self.asking_async(plugin.name, point, False, _truth_later, release, pod, patch):
                return True
        return False

    def tell_released(self, key: str, pods: int) -> None:
        """Tell all plugins that pods of a workload were released; their failures change nothing."""
        for plugin in self.after_releases:
            with isolated():  # the guard around the call has reported the failure
                self.asking(plugin.name, Point.AFTER_RELEASE, None, plugin.after_release, key, pods)

    @property
    def releases_pods(self) -> bool:
        """Whether a plugin takes part in releases."""
        return bool(self.before_releases or self.releases or self.after_releases)


class Reservation:
    """The plugins that have reserved for one decision; as a context manager it is undone when its block raises."""

    def __init__(self, asking: Asking, admit: Admit, called: Sequence[ReservePlugin], refusal: str = "") -> None:
        """`called` are the plugins that were called; `refusal` is why the decision must not be written."""
        self._asking, self._admit, self._called = asking, admit, tuple(called)
        self.refusal = refusal

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, failure: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if failure is not None:
            self.undo()

    def undo(self) -> None:
        """Undo the reservation of the plugins that were called, the last one first.  A second call does nothing."""
        called, self._called = self._called, ()
        for plugin in reversed(called):
            with isolated():  # the guard around the call has reported the failure; the others are called all the same
                self._asking(plugin.name, Point.UNRESERVE, None, plugin.unreserve, self._admit)


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitHooks:
    """The plugins of point `permit` by name; AdmissionChecks name them, whatever the profile."""

    asking_async: AskingAsync = ask_async_plainly
    plugins: Mapping[str, PermitPlugin] = field(default_factory=dict)

    async def permission(self, plugin: str, admit: Admit) -> Permission:
        """Return whether a workload with quota may start.  Raises PluginError."""
        permit = self.plugins[plugin].permit
        return await self.asking_async(plugin, Point.PERMIT, Approve(), _permission_later, permit, admit)


NO_PERMITS = PermitHooks()
NO_HOOKS = ProfileHooks()
HooksByProfile = Mapping[str, ProfileHooks]
"""Hooks by the name of the profile; profiles without plugins are left out."""


def _with(plugins: Iterable[Plugin], method: str) -> Iterator[Plugin]:
    return (plugin for plugin in plugins if hasattr(plugin, method))


def _verdict(method: Callable[..., object], about: object) -> Verdict:
    return _checked(Verdict, method(about))


async def _verdict_later(method: Callable[..., Awaitable[object]], key: str, admission: Admission) -> Verdict:
    return _checked(Verdict, await method(key, admission))


async def _permission_later(method: Callable[..., Awaitable[object]], admit: Admit) -> Permission:
    answer = await method(admit)
    if not isinstance(answer, Approve | Deny | WaitFor):
        raise TypeError(f"the answer is {type(answer).__name__}, not Approve, Deny or WaitFor")
    if not isinstance(answer, Approve) and not math.isfinite(answer.seconds):
        raise ValueError(f"{answer.seconds} is no number of seconds")
    return answer


async def _truth_later(method: Callable[..., Awaitable[object]], pod: PodRef, patch: ReleasePatch) -> bool:
    return _checked(bool, await method(pod, patch))


def _text(method: Callable[..., object], pod_set: PodSet, about: object) -> str:
    return _checked(str, method(pod_set, about))


def _uids(method: Callable[..., object], head: Head, targets: Sequence[Target]) -> frozenset[str]:
    return _checked(frozenset, method(head, targets))


def _rank(method: Callable[..., object], head: Head, targets: Sequence[Target]) -> tuple[Any, ...]:
    return _checked(tuple, method(head, targets))


def _scores(plugin: ScorePlugin, head: Head, flavors: Mapping[str, Flavor]) -> Mapping[str, int]:
    """Return the scores of one plugin.  Raises ValueError where one is out of bounds, or is missing or too many."""
    prepare, normalise = getattr(plugin, "prepare", None), getattr(plugin, "normalise", None)
    prepared = prepare(head) if prepare is not None else head
    scores: Mapping[str, int] = {name: plugin.score(prepared, flavor) for name, flavor in flavors.items()}
    if normalise is not None:
        scores = dict(normalise(scores))
    if scores.keys() != flavors.keys():
        raise ValueError(f"normalise returned scores of {sorted(scores)}, not of {sorted(flavors)}")
    for name, score in scores.items():
        if not isinstance(score, int) or not 0 <= score <= 100:
            raise ValueError(f"the score of flavor {name} is {score!r}, not a whole number from 0 to 100")
    return scores
