"""The workloads with pods on some hosts: an index that follows the usage of these hosts only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from kqueue.core.topology.result import Path


class HostHolders:
    """Workloads by host, for hosts that somebody asked for; all others cost nothing.

    A host is named as assignments write it: its host name, or its full path where the lowest level is no host.
    """

    def __init__(self) -> None:
        self._at: dict[Path, dict[str, int]] = {}
        """By followed host, the pods of each workload there."""
        self.generation = 0
        """Grows with every change of a followed host."""

    def __bool__(self) -> bool:
        return bool(self._at)

    def follow(self, hosts: Collection[Path], usages: Iterable[tuple[str, Iterable[tuple[Path, int]]]]) -> None:
        """Follow these hosts, and no others from now on; `usages`: the hosts and pods of each workload at present.

        `usages` is read only if a host is new.
        """
        wanted = set(hosts)
        new = wanted - self._at.keys()
        if not new and len(wanted) == len(self._at):
            return
        self._at = {host: self._at.get(host, {}) for host in wanted}
        self.generation += 1
        for workload, places in usages if new else ():
            for host, pods in places:
                if host in new:
                    self._add(host, workload, pods)

    def count(self, workload: str, places: Iterable[tuple[Path, int]], sign: int) -> None:
        """Follow usage that a workload got (`sign` 1) or released (-1)."""
        for host, pods in places:
            if host in self._at:
                self._add(host, workload, sign * pods)
                self.generation += 1

    def _add(self, host: Path, workload: str, pods: int) -> None:
        there = self._at[host]
        left = there.get(workload, 0) + pods
        if left > 0:
            there[workload] = left
        else:
            there.pop(workload, None)

    def at(self, host: Path) -> Mapping[str, int]:
        """Return the workloads with pods on a followed host, and the number of these pods; empty for other hosts."""
        return self._at.get(host, {})

    def on(self, hosts: Iterable[Path]) -> dict[str, int]:
        """Return the workloads with pods on any of these followed hosts, and the number of these pods."""
        found: dict[str, int] = {}
        for host in hosts:
            for workload, pods in self.at(host).items():
                found[workload] = found.get(workload, 0) + pods
        return found

    def hosts(self) -> Iterator[Path]:
        """Yield the followed hosts."""
        return iter(self._at)
