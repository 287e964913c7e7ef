"""Which namespaces a ClusterQueue admits, and in words why not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kqueue.api.wire import kueue as wire
from kqueue.state.namespaces import namespace_problem


def make_queue(**spec: Any) -> wire.ClusterQueue:
    """A ClusterQueue `team`."""
    return msgspec.convert({"metadata": {"name": "team"}, "spec": spec}, wire.ClusterQueue)


ALL = make_queue(namespaceSelector={})
LABELLED = make_queue(namespaceSelector={"matchLabels": {"tenant": "a"}})


@pytest.mark.parametrize(
    ("labels", "queue", "facts"),
    [
        pytest.param({}, ALL, None, id="an-empty-selector-admits-all"),
        pytest.param({"tenant": "a", "x": "y"}, LABELLED, None, id="the-labels-match"),
        pytest.param({}, None, None, id="an-unknown-queue-is-told-elsewhere"),
        pytest.param(
            {"tenant": "b"},
            LABELLED,
            ["Namespace ns does not match", "ClusterQueue team", "label it"],
            id="other-labels",
        ),
        pytest.param(
            {"tenant": "a"},
            make_queue(),
            ["ClusterQueue team admits no namespace", "set its spec.namespaceSelector"],
            id="no-selector-admits-none",
        ),
        pytest.param(None, ALL, ["Namespace ns does not exist"], id="the-namespace-is-gone"),
        pytest.param(None, None, ["Namespace ns does not exist"], id="both-are-unknown"),
    ],
)
def test_a_namespace_that_is_not_admitted_says_what_to_do(
    labels: dict[str, str] | None, queue: wire.ClusterQueue | None, facts: list[str] | None
) -> None:
    """None when workloads may come; else a sentence that names the namespace or queue, and the remedy."""
    problem = namespace_problem("ns", labels, queue)

    assert (problem is None) is (facts is None)
    assert all(fact in str(problem) for fact in facts or ())
