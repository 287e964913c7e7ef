"""Items of long lists: the same as when decoded at once, in pieces, in whatever form the server writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kqueue.api.wire.metrics import NodeMetrics
from kqueue.clock import FakeClock
from kqueue.errors import ServerError
from kqueue.runtime.list_items import ListItems

TIGHT = (",", ":")


def node(name: str, **more: Any) -> Any:
    return {"metadata": {"name": name, **more}, "timestamp": "t", "usage": {"cpu": "1n", "memory": "1Ki"}}


def body(items: Any, *, separators: tuple[str, str] = TIGHT, **more: Any) -> bytes:
    document = {"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}
    return json.dumps({**document, **more}, separators=separators).encode()


async def read(data: bytes) -> tuple[list[str | None], list[int]]:
    """The names of all items, None for one of another form, and the sizes of the pieces."""
    items = ListItems(NodeMetrics, first_field="metadata", clock=FakeClock())
    found: list[str | None] = []
    sizes = []
    async for piece in items.of(data, "list nodes"):
        found += [item.metadata.name if item is not None else None for item in piece]
        sizes.append(len(piece))
    return found, sizes


MANY = [node(f"n{n}", labels={"text": '}],"items":[{"metadata":{}},{"metadata":'}) for n in range(4_000)]


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(lambda items: body(items), id="as Go writes it"),
        pytest.param(lambda items: body(items) + b"\n", id="with a line end"),
        pytest.param(lambda items: body(items, separators=(", ", ": ")), id="with spaces"),
        pytest.param(lambda items: body(items, trailing=1), id="items are not the last field"),
        pytest.param(
            lambda items: body([{key: one[key] for key in ("usage", "metadata")} for one in items]), id="another order"
        ),
    ],
)
async def test_a_long_list_comes_in_pieces(written: Callable[[Any], bytes]) -> None:
    found, sizes = await read(written(MANY))
    assert found == [f"n{n}" for n in range(4_000)]
    assert len(sizes) >= 4
    assert max(sizes) <= 2_000


async def test_an_item_of_another_form_leaves_the_others_alone() -> None:
    items: list[Any] = [node("a"), {"metadata": {"name": 7}}, node("b"), {"usage": {}}, "text", node("c")]
    assert await read(body(items)) == (["a", None, "b", None, None, "c"], [6])


@pytest.mark.parametrize(
    ("data", "names"),
    [
        pytest.param(body([]), [], id="no items"),
        pytest.param(body(None), [], id="null"),
        pytest.param(body([node("a")]), ["a"], id="one"),
        pytest.param(b"{}", [], id="no field"),
    ],
)
async def test_short_lists(data: bytes, names: list[str]) -> None:
    assert (await read(data))[0] == names


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"<html>down</html>", id="a page of a proxy"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"[]", id="no object"),
        pytest.param(b'{"items":7}', id="items are a number"),
        pytest.param(b'{"items":[{"metadata":{}},{"metadata":nonsense}]}', id="nonsense in an item"),
    ],
)
async def test_what_is_no_list_is_an_error(data: bytes) -> None:
    with pytest.raises(ServerError, match="list nodes: the answer is no list"):
        await read(data)
