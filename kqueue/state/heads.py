"""Build the planner's heads of Workloads: their requests, the slices they replace, the hosts they avoid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.core.workload import Head, Replaced
from kqueue.model import DEFAULT_ORDER, QueueOrder
from kqueue.model.pending import Pending
from kqueue.state import failures
from kqueue.state.cache import Cache
from kqueue.state.near_gang import NearGang
from kqueue.state.quota_cache import QuotaCache
from kqueue.state.variants import VariantRules, Variants

_FROM_THE_FRONT: Mapping[tuple[str, str], int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadOptions:
    """The values on which heads depend besides the cache, with the meanings of `LoopSettings`."""

    elastic: bool = False
    preemption_gates: bool = False
    variants: VariantRules | None = None
    order: QueueOrder = DEFAULT_ORDER
    policy_of: Callable[[str], str | None] = lambda _name: None
    guess_of: Callable[[wire.Workload], int | None] = lambda _obj: None


class Heads:
    """Builds heads of Workloads."""

    def __init__(
        self,
        cache: Cache,
        newest: Callable[[str], wire.Workload | None],
        options: HeadOptions | None = None,
    ) -> None:
        """Take the cache and the options; `newest` returns the latest version of a Workload."""
        options = options or HeadOptions()
        variants = options.variants
        self._cache, self._newest, self._options = cache, newest, options
        self.variants = Variants(cache, newest, variants) if variants is not None else None
        self._near_gang = NearGang(cache.ledger, newest)

    def make(
        self,
        obj: wire.Workload,
        item: Pending | None,
        *,
        queue: str,
        now: datetime,
        last_tried: Mapping[tuple[str, str], int] = _FROM_THE_FRONT,
        quota: QuotaCache | None = None,
    ) -> Head:
        """Return the Workload as a head of this ClusterQueue; `item` is its entry in the queues.

        `quota` is the configuration that counts; None: the present one.

        Raises InvalidObjectError when the requests of the Workload cannot be read.
        """
        head = self._cache.requests.head(
            obj,
            item,
            queue=queue,
            topology_only=(quota or self._cache.quota).is_topology_only(queue),
            last_tried=last_tried,
            replaces=self._replaced(obj, queue) if self._options.elastic else None,
            order=self._options.order,
        )
        pod_sets = self._near_gang.pod_sets(obj, head.pod_sets)
        avoided = failures.avoided(obj, now)
        gates = model.closed_gates(obj) if self._options.preemption_gates else ()
        never = model.never_preempts(obj, self._options.policy_of)
        extra_of, least = model.extra_of(obj), model.least_of(obj)
        variant = self.variants.read(obj, queue) if self.variants is not None else None
        promised = model.promised_run_time(obj)
        guessed = None if model.has_overrun(obj) else self._options.guess_of(obj)
        has_times = promised is not None or guessed is not None
        if pod_sets is head.pod_sets and not (avoided or gates or never or extra_of or least or variant or has_times):
            return head
        return replace(
            head,
            pod_sets=pod_sets,
            avoided=avoided,
            closed_gates=gates,
            never_preempts=never,
            extra_of=extra_of,
            least=least,
            variant=variant,
            promised=promised,
            guessed=guessed,
        )

    def _replaced(self, obj: wire.Workload, queue: str) -> Replaced | None:
        """Return the older slice of the job that the workload replaces; None: none, or the slice is over or evicted."""
        key = model.replaced_key(obj)
        holding = self._cache.held.holding(key) if key is not None else None
        if key is None or holding is None or holding.queue != queue:
            return None
        if holding.job != model.controller_of(obj.metadata):
            return None  # the slice belongs to another job
        older = self._newest(key)
        if older is None or model.is_over(older) or model.condition_true(older, names.CONDITION_EVICTED):
            return None
        return Replaced(key=key, admission=holding.admission, requests=holding.requests)
