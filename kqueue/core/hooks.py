"""The plugins of one profile, asked in the order of the configuration.

A plugin that fails either keeps the workload waiting (PluginError) or counts as if it agreed: `Asking` decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from kqueue.core.decision import Admit
from kqueue.core.plugins import (
    AGREED,
    AfterReleasePlugin,
    BeforeReleasePlugin,
    Plugin,
    Point,
    RankPlugin,
    ReleasePlugin,
    ReservePlugin,
    ScorePlugin,
    ScreenPlugin,
    Verdict,
    VetoPlugin,
)
from kqueue.core.preemption import Target
from kqueue.core.topology import NodeFacts
from kqueue.core.workload import Flavor, Head, PodSet
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


def ask_plainly(plugin: str, point: Point, agreed: T, question: Callable[..., T], *about: Any) -> T:
    """Ask without a limit of time; each failure is raised as PluginError."""
    del point, agreed
    with isolated() as call:
        return question(*about)
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


_MOST_FORMS = 256
"""Pod sets whose nodes are remembered; then the oldest is forgotten."""


class NodeMasks:
    """The nodes that plugins refuse to pod sets; each node is asked about once for each of its versions."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[PodSet, dict[str, tuple[NodeFacts, PluginRefusal | None]]]] = {}
        """Pod sets are found by their identity, so they stay as long as their masks do."""

    def refused(
        self, pod_set: PodSet, nodes: Iterable[NodeFacts], judge: Callable[[PodSet, NodeFacts], PluginRefusal | None]
    ) -> dict[str, PluginRefusal]:
        """Return the refused nodes by name."""
        known = self._of.get(id(pod_set))
        if known is None:
            if len(self._of) >= _MOST_FORMS:
                del self._of[next(iter(self._of))]
            known = self._of[id(pod_set)] = pod_set, {}
        before, now = known[1], dict[str, tuple[NodeFacts, PluginRefusal | None]]()
        for node in nodes:
            judged = before.get(node.name)
            now[node.name] = judged if judged is not None and judged[0] is node else (node, judge(pod_set, node))
        before.update(now)
        return {name: refusal for name, (_, refusal) in now.items() if refusal is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileHooks:
    """The plugins of one profile by point; points without plugins cost nothing."""

    asking: Asking = ask_plainly
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

    def refused_nodes(self, pod_set: PodSet, nodes: Iterable[NodeFacts]) -> dict[str, PluginRefusal]:
        """Return the nodes that a pod set must not use, by name, each with the first refusal."""
        return self.masks.refused(pod_set, nodes, self._refused_node)

    def _refused_node(self, pod_set: PodSet, node: NodeFacts) -> PluginRefusal | None:
        for plugin in _with(self.filters, "allows_node"):
            reason = self._text(plugin, "allows_node", pod_set, node)
            if reason:
                return PluginRefusal(plugin.name, reason)
        return None

    def _text(self, plugin: Plugin, method: str, pod_set: PodSet, about: Flavor | NodeFacts) -> str:
        return self.asking(plugin.name, Point.FILTER, "", _text, getattr(plugin, method), pod_set, about)

    @property
    def filters_nodes(self) -> bool:
        """Whether a plugin judges nodes."""
        return any(True for _ in _with(self.filters, "allows_node"))

    # --- victims

    def vetoed(self, head: Head, targets: Sequence[Target]) -> frozenset[str]:
        """Return the UIDs of the targets that must stay, of all plugins together."""
        stay = nothing = frozenset[str]()
        for plugin in _with(self.victims, "veto"):
            veto = cast("VetoPlugin", plugin).veto
            stay |= self.asking(plugin.name, Point.VICTIMS, nothing, _uids, veto, head, targets)
        return stay & {target.admitted.uid for target in targets}

    @property
    def vetoes(self) -> bool:
        """Whether a plugin protects workloads."""
        return any(True for _ in _with(self.victims, "veto"))

    def ranked(self, head: Head, targets: Sequence[Target]) -> tuple[Any, ...]:
        """Return the sort key of a set of targets: the keys of all plugins, the first plugin first."""
        return tuple(
            self.asking(plugin.name, Point.VICTIMS, (), _rank, cast("RankPlugin", plugin).rank, head, targets)
            for plugin in _with(self.victims, "rank")
        )

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


class Reservation:
    """What plugins have taken in about one decision."""

    def __init__(self, asking: Asking, admit: Admit, called: Sequence[ReservePlugin], refusal: str = "") -> None:
        """`called` are the plugins that were asked; `refusal` is why the decision must not be written."""
        self._asking, self._admit, self._called = asking, admit, tuple(called)
        self.refusal = refusal

    def undo(self) -> None:
        """Tell the plugins that were asked, the last one first, that the decision is not written.  Once."""
        called, self._called = self._called, ()
        for plugin in reversed(called):
            with isolated():  # the guard around the call has reported the failure; the others are told all the same
                self._asking(plugin.name, Point.UNRESERVE, None, plugin.unreserve, self._admit)


NO_HOOKS = ProfileHooks()
HooksByProfile = Mapping[str, ProfileHooks]
"""Hooks by the name of the profile; profiles without plugins are left out."""


def _with(plugins: Iterable[Plugin], method: str) -> Iterator[Plugin]:
    return (plugin for plugin in plugins if hasattr(plugin, method))


def _verdict(method: Callable[..., object], about: object) -> Verdict:
    return _checked(Verdict, method(about))


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


AsyncQuestion = Callable[[], Awaitable[T]]


class AskingAsync(Protocol):
    """Calls an async method of a plugin."""

    async def __call__(self, plugin: str, point: Point, agreed: T, question: AsyncQuestion[T]) -> T:
        """Return the answer, `agreed` or PluginError, as `Asking` does."""
        ...
