"""For all tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says more about who else uses the machine than about what is tested.
settings.register_profile("kqueue", deadline=None)
settings.load_profile("kqueue")
