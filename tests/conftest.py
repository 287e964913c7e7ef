"""Fixtures and settings of all tests."""

from __future__ import annotations

import signal

from hypothesis import settings

# How long an example takes says more about who else uses the machine than about what is tested.
settings.register_profile("kqueue", deadline=None)
settings.load_profile("kqueue")

# Shells and some CI systems start background jobs with SIGINT ignored, and children inherit that: then an interrupt would
# not end the commands that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
