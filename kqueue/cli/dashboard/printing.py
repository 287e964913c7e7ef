"""Summaries printed once: with colours and bars on a terminal, as plain columns for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from kqueue.cli.dashboard import domains
from kqueue.cli.dashboard import queues as queue_rows
from kqueue.cli.output import printable
from kqueue.cli.tables import print_nothing_found, print_table

JSON = Mapping[str, Any]
_EVERY_NODE = 10_000
_LOCAL_HEADERS = ("namespace", "localqueue", "clusterqueue", "pending", "admitted")


def print_topologies(summaries: Sequence[JSON], resources: Sequence[str]) -> None:
    """Print each Topology with its flavors."""
    if not summaries:
        print_nothing_found()
        return
    if sys.stdout.isatty():
        from kqueue.cli.dashboard.screen import topology_page

        for summary in summaries:
            _console().print(topology_page(summary, resources))
        return
    for number, summary in enumerate(summaries):
        if number:
            print()
        _print_plain(summary, resources)


def _print_plain(summary: JSON, resources: Sequence[str]) -> None:
    if not summary["flavors"]:
        print(printable(f"Topology {summary['metadata']['name']}: no flavor uses it"))
    for flavor in summary["flavors"]:
        print(printable(domains.title(summary, flavor)))
        print_table(domains.DomainRow.HEADERS, [row.cells() for row in domains.rows(flavor, resources)])
        if flavor.get("cut"):
            print(printable(flavor["cut"]))
        holders = domains.held_by(flavor)
        if holders:
            print()
            print_table(domains.HOLDER_HEADERS, holders)
        headers, lines = domains.gangs(flavor)
        if lines:
            print()
            print_table(headers, lines)
        nodes = list(domains.left_out(flavor, _EVERY_NODE))
        if nodes:
            print()
            print_table(domains.LEFT_OUT_HEADERS, nodes)


def print_queues(answer: JSON, resources: Sequence[str], order: queue_rows.Order) -> None:
    """Print queues: on a terminal one page; else tables of ClusterQueues, cohorts and LocalQueues, if any."""
    if not answer["items"]:
        print_nothing_found()
        return
    if sys.stdout.isatty():
        from kqueue.cli.dashboard.screen import queue_page

        _console().print(queue_page(answer, resources, order))
        return
    print_table(queue_rows.HEADERS, [row.cells() for row in queue_rows.rows(answer, resources, order)])
    cohorts = queue_rows.cohort_rows(answer, resources)
    if cohorts:
        print()
        print_table(queue_rows.COHORT_HEADERS, cohorts)
    lines = queue_rows.local_rows(answer)
    if lines:
        print()
        print_table(_LOCAL_HEADERS, lines)


def _console() -> Any:
    from rich.console import Console

    return Console(highlight=False, emoji=False)
