"""The boundary for faults."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import structlog

from kqueue.clock import FakeClock
from kqueue.isolation import isolated, isolated_logged
from kqueue.observe import configure_logs

BOUNDARIES: list[Callable[[], AbstractContextManager[Any]]] = [
    isolated,
    lambda: isolated(lambda _: None),
    lambda: isolated_logged(_Log([]), "it failed"),
]
NOT_STOPPED = [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(1), GeneratorExit(), BaseException()]


class _Log:
    def __init__(self, lines: list[tuple[str, dict[str, Any]]]) -> None:
        self.lines = lines

    def exception(self, event: str, /, **fields: Any) -> None:
        self.lines.append((event, fields))


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=["silent", "with a function", "with a log"])
@pytest.mark.parametrize("error", NOT_STOPPED, ids=lambda error: type(error).__name__)
def test_what_ends_a_task_or_the_process_goes_on(boundary: Callable[[], Any], error: BaseException) -> None:
    with pytest.raises(type(error)), boundary() as block:
        raise error
    assert block.error is None


@pytest.mark.parametrize("error", [ValueError("v"), RecursionError(), ExceptionGroup("g", [ValueError("v")])], ids=repr)
def test_an_error_ends_the_block_and_is_a_value_after_it(error: Exception) -> None:
    reached = []
    with isolated() as block:
        reached.append("before")
        raise error
    assert reached == ["before"]
    assert block.error is error


def test_a_block_without_an_error_calls_nothing() -> None:
    seen: list[Exception] = []
    with isolated(seen.append) as block:
        pass
    assert (seen, block.error) == ([], None)


def test_the_function_gets_the_error_once() -> None:
    seen: list[Exception] = []
    error = ValueError("v")
    with isolated(seen.append):
        raise error
    assert seen == [error]


def test_an_error_of_the_function_goes_on_and_names_the_first_one() -> None:
    first = ValueError("first")

    def translate(error: Exception) -> None:
        raise KeyError("second") from error

    with pytest.raises(KeyError) as raised, isolated(translate):
        raise first
    assert raised.value.__cause__ is first


async def test_an_async_body_may_wait_and_be_cancelled_in_it() -> None:
    seen: list[Exception] = []

    async def body(raises: BaseException | None) -> str:
        with isolated(seen.append):
            await asyncio.sleep(0)
            if raises is not None:
                raise raises
            return "ended by itself"
        return "was stopped"

    assert await body(None) == "ended by itself"
    assert await body(ValueError("v")) == "was stopped"
    task = asyncio.ensure_future(body(asyncio.CancelledError()))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [str(error) for error in seen] == ["v"]


def test_the_log_gets_event_and_fields_as_they_were_given() -> None:
    log = _Log([])
    with isolated_logged(log, "it failed", log="a field", event="another", key="ns/name"):
        raise ValueError("v")
    assert log.lines == [("it failed", {"log": "a field", "event": "another", "key": "ns/name"})]


def test_the_line_in_the_log_has_the_traceback_of_the_block() -> None:
    stream = io.BytesIO()
    configure_logs("json", "info", stream=stream, clock=FakeClock())
    with isolated_logged(structlog.get_logger("kqueue.some.room"), "it failed", key="ns/name"):
        _breaks()
    line = json.loads(stream.getvalue())
    assert (line["level"], line["logger"], line["event"], line["key"]) == (
        "error", "kqueue.some.room", "it failed", "ns/name",
    )  # fmt: skip
    assert "in _breaks" in line["exception"]
    assert line["exception"].endswith("ValueError: v")


def _breaks() -> None:
    raise ValueError("v")
