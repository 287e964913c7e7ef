"""A screen that is requested and drawn again every few seconds, until q or ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from kqueue.cli.output import printable
from kqueue.clock import Clock
from kqueue.errors import KqueueError

Page = Callable[[Any, int], RenderableType]
"""Draws an answer on a given number of lines."""
_FRAME = 2
"""Lines of the screen outside the page: the head and the foot."""


async def follow(
    ask: Callable[[], Awaitable[Any]], page: Page, *, console: Console, clock: Clock, seconds: float
) -> None:
    """Ask and draw until the user quits. After a failed request the last answer stays, with a note.

    Raises:
        KqueueError: the first request failed.
    """
    answer, answered = await ask(), clock.now()
    async with _keys() as pressed:
        with Live(console=console, screen=True, auto_refresh=False, transient=True) as live:
            failure = ""
            while not pressed.ended:
                height = max(4, console.size.height - _FRAME)
                head = _line(f"kqueue top  {answered.astimezone():%H:%M:%S}", "reverse")
                foot = _line(f"q ends; every {seconds:g} s", "bright_black")
                if failure:
                    foot = _line(f"no answer since {answered.astimezone():%H:%M:%S}: {printable(failure)}", "bold red")
                live.update(Group(head, page(answer, height), foot), refresh=True)
                await pressed.wait(seconds)
                if not pressed.ended and not pressed.resized:
                    asking = asyncio.ensure_future(ask())
                    try:
                        await pressed.until(asking)
                        if asking.done():
                            answer, answered, failure = asking.result(), clock.now(), ""
                    except KqueueError as error:
                        failure = str(error)
                    finally:
                        asking.cancel()


def _line(words: str, style: str) -> Text:
    """Return a text of one line at any width."""
    return Text(words, style=style, no_wrap=True, overflow="ellipsis")


class _Pressed:
    """The user's actions: quit, or resize the window."""

    def __init__(self) -> None:
        self.ended = self.resized = False
        self._changed = asyncio.Event()

    def end(self) -> None:
        self.ended = True
        self._changed.set()

    def resize(self) -> None:
        self.resized = True
        self._changed.set()

    async def wait(self, seconds: float) -> None:
        """Wait for an event, or until the time is over."""
        self.resized = False
        if not self.ended:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), seconds)

    async def until(self, work: asyncio.Future[Any]) -> None:
        """Wait until the work is done, or the user requests the end."""
        self._changed.clear()
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            while not work.done() and not self.ended:
                await asyncio.wait({work, changed}, return_when=asyncio.FIRST_COMPLETED)
                if changed.done() and not self.ended:  # new size: drawn with the answer
                    self._changed.clear()
                    changed = asyncio.ensure_future(self._changed.wait())
        finally:
            changed.cancel()


@asynccontextmanager
async def _keys() -> AsyncIterator[_Pressed]:
    """Follow keys and signals; restore the terminal's mode in the end."""
    pressed, loop = _Pressed(), asyncio.get_running_loop()
    signals = {signal.SIGINT: pressed.end, signal.SIGTERM: pressed.end, signal.SIGHUP: pressed.end}
    for number, act in {**signals, signal.SIGWINCH: pressed.resize}.items():
        loop.add_signal_handler(number, act)
    try:
        with _single_keys() as descriptor:
            if descriptor is not None:
                loop.add_reader(descriptor, _read, descriptor, pressed)
            try:
                yield pressed
            finally:
                if descriptor is not None:
                    loop.remove_reader(descriptor)
    finally:
        for number in (*signals, signal.SIGWINCH):
            loop.remove_signal_handler(number)


def _read(descriptor: int, pressed: _Pressed) -> None:
    typed = os.read(descriptor, 64)
    if not typed or b"q" in typed.lower():
        pressed.end()


@contextlib.contextmanager
def _single_keys() -> Any:
    """Make keys arrive without Enter and without echo; yield stdin's descriptor, None if stdin is no terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
