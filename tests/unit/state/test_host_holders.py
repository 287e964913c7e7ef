"""The index of workloads by followed host."""

from __future__ import annotations

import pytest

from kqueue.state.host_holders import HostHolders

H1, H2, H3 = ("h1",), ("h2",), ("h3",)


def followed(*hosts: tuple[str, ...]) -> HostHolders:
    """An index that follows hosts on which v has 2 pods each."""
    found = HostHolders()
    found.follow(hosts, [("v", [(host, 2) for host in (H1, H2, H3)])])
    return found


def test_usage_of_followed_hosts_is_counted() -> None:
    found = followed(H1, H2)
    found.count("w", [(H1, 1), (H3, 5)], 1)
    assert (dict(found.at(H1)), dict(found.at(H2)), dict(found.at(H3))) == ({"v": 2, "w": 1}, {"v": 2}, {})
    assert found.on([H1, H2, H3]) == {"v": 4, "w": 1}
    found.count("w", [(H1, 1), (H3, 5)], -1)
    assert found.on([H1]) == {"v": 2}


@pytest.mark.parametrize(
    ("hosts", "reads"),
    [
        pytest.param((H1, H2), False, id="the same hosts"),
        pytest.param((H1,), False, id="fewer hosts"),
        pytest.param((H1, H3), True, id="a new host"),
    ],
)
def test_all_usage_is_read_for_new_hosts_only(hosts: tuple[tuple[str, ...], ...], reads: bool) -> None:
    found, read = followed(H1, H2), list[str]()

    def usages() -> object:
        read.append("v")
        yield "v", [(H3, 2)]

    found.follow(hosts, usages())  # type: ignore[arg-type]
    assert (bool(read), set(found.hosts())) == (reads, set(hosts))
    assert found.on([H1]) == {"v": 2}


def test_changes_elsewhere_do_not_count() -> None:
    found = followed(H1)
    before = found.generation
    found.count("w", [(H2, 1)], 1)
    assert found.generation == before
    found.count("w", [(H1, 1)], 1)
    assert found.generation > before
