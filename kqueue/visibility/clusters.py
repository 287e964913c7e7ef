"""The part of an explanation about other clusters: what each one says about a workload that waits for one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from kqueue.api.wire import kueue as wire
from kqueue.clock import utc_text
from kqueue.jobs.multikueue.answers import ClusterAnswer, Start
from kqueue.jobs.multikueue.ranking import ranked
from kqueue.runtime.store import Store, object_key
from kqueue.visibility.explained import SOMEBODY
from kqueue.visibility.question import JSON, AuthorizedQuestion, View

_STARTS = {
    Start.NOW: "Now",
    Start.AFTER_PREEMPTION: "AfterPreemption",
    Start.UNKNOWN: "Unknown",
    Start.LATER: "Later",
    Start.NEVER: "Never",
}


class ClusterExplainer:
    """The view `workloads/explanation` of a manager: the explanation of its own cluster, and the answers of others."""

    def __init__(
        self,
        own: View,
        workloads: Store[wire.Workload],
        answers: Callable[[], Callable[[wire.Workload], Awaitable[Mapping[str, ClusterAnswer]]] | None],
    ) -> None:
        """`answers` returns who asks the clusters; None: no workload is sent away, or another replica sends it."""
        self._own, self._workloads, self._answers = own, workloads, answers

    async def view(self, asked: AuthorizedQuestion) -> JSON:
        """Return the Explanation, with `clusters`, the best one first, if the Workload waits for one of them.

        Raises:
            NotFoundError, ConfigError: as the explanation of the own cluster.
        """
        shown, ask = await self._own(asked), self._answers()
        workload = self._workloads.get(object_key(asked.namespace, asked.name))
        if ask is None or workload is None:
            return shown
        found = await ask(workload)
        if not found:
            return shown
        sent = workload.status.nominated_cluster_names
        clusters = [await _shown(name, found[name], asked) for name in ranked(list(found), found)]
        return {**shown, "clusters": [{**one, "sent": one["cluster"] in sent} for one in clusters]}


async def _shown(cluster: str, answer: ClusterAnswer, asked: AuthorizedQuestion) -> JSON:
    """Return the answer of a cluster as JSON; workloads to preempt are named to users who may read them here."""
    shown: JSON = {"cluster": cluster, "start": _STARTS[answer.start], "message": answer.message}
    numbers = {"preempts": answer.preempts, "room": answer.room, "waitingAhead": answer.ahead}
    if answer.level:
        shown |= {"level": answer.level, "domains": answer.domains, "fewestDomains": answer.fewest}
    shown |= {name: number for name, number in numbers.items() if number}
    if answer.borrows:
        shown["borrows"] = True
    if answer.at is not None:
        shown["at"] = utc_text(answer.at)
    if answer.preempted:
        may = {each: await asked.reads(each) for each in {key.partition("/")[0] for key in answer.preempted}}
        shown["preempted"] = [key if may[key.partition("/")[0]] else SOMEBODY for key in answer.preempted]
    return shown
