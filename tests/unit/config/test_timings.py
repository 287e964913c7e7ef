"""The fixed times, and what the environment may say about them."""

from __future__ import annotations

import pytest

from kqueue.config import Timings
from kqueue.errors import ConfigError


def test_without_variables_the_defaults_hold() -> None:
    """An environment without our prefix changes nothing."""
    assert Timings.from_env({"PATH": "x", "KQUEUE_OTHER": "1"}) == Timings()


def test_batch_windows_are_those_of_the_compatible_system() -> None:
    """Users who compare see the same windows: 1 s for the ungater, node events and flushes, 10 s for freed nodes."""
    timings = Timings()
    assert (timings.ungater_window, timings.node_event_window, timings.queue_flush_window) == (1.0, 1.0, 1.0)
    assert timings.foreign_pod_drain == 10.0


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param("2", 2.0, id="seconds-as-a-number"),
        pytest.param("0.25", 0.25, id="fraction"),
        pytest.param(" 250ms ", 0.25, id="duration-with-blanks-around"),
        pytest.param("1m30s", 90.0, id="long-duration"),
        pytest.param("0", 0.0, id="a-window-may-be-zero"),
    ],
)
def test_a_variable_overrides_its_timing(value: str, want: float) -> None:
    """KQUEUE_TIMING_ and the name in upper case sets one timing and no other."""
    timings = Timings.from_env({"KQUEUE_TIMING_UNGATER_WINDOW": value})
    assert timings == Timings(ungater_window=want)


@pytest.mark.parametrize(
    ("variable", "value", "want"),
    [
        pytest.param("UNGATER_WINDOW", "soon", "must be seconds as a number", id="no-time"),
        pytest.param("UNGATER_WINDOW", "", "must be seconds as a number", id="empty"),
        pytest.param("UNGATER_WINDOW", "-1s", "must not be negative", id="negative"),
        pytest.param("UNGATER_WINDOW", "nan", "must be seconds as a number", id="not-a-number"),
        pytest.param("UNGATER_WINDOW", "inf", "must be seconds as a number", id="infinite"),
        pytest.param("LOOP_PROBE_INTERVAL", "0", "must be more than zero", id="an-interval-may-not-be-zero"),
        pytest.param("WATCH_RETRY_BASE", "1m", "must not be above KQUEUE_TIMING_WATCH_RETRY_MAX", id="base-above-max"),
    ],
)
def test_a_bad_value_names_the_variable(variable: str, value: str, want: str) -> None:
    """A time that cannot be used is refused with its variable and the remedy."""
    with pytest.raises(ConfigError, match=f"KQUEUE_TIMING_{variable}: {want}"):
        Timings.from_env({f"KQUEUE_TIMING_{variable}": value})


def test_an_unknown_name_lists_the_known_ones() -> None:
    """A misspelt variable is not ignored: the error proposes the nearest and lists all."""
    with pytest.raises(ConfigError) as caught:
        Timings.from_env({"KQUEUE_TIMING_UNGATER_WINDWO": "1", "KQUEUE_TIMING_METRICS_CACHE": "x"})
    text = str(caught.value)
    assert "KQUEUE_TIMING_UNGATER_WINDWO: unknown timing; did you mean KQUEUE_TIMING_UNGATER_WINDOW?" in text
    assert "KQUEUE_TIMING_METRICS_CACHE: must be seconds" in text
    assert "KQUEUE_TIMING_FOREIGN_POD_DRAIN" in text
