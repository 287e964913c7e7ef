"""Settings: the Configuration file, the feature gates and the fixed times.

The package has models, defaults, rules, and errors that name the field and the remedy.  Its only I/O is reading the
file and the environment.  The entry points are `load` and `Timings.from_env`.
"""

from __future__ import annotations

from kqueue.config.address import Address, parse_address
from kqueue.config.duration import duration_text, parse_duration
from kqueue.config.load import ConfigFileError, load, parse
from kqueue.config.model import Configuration
from kqueue.config.timings import Timings

__all__ = [
    "Address",
    "ConfigFileError",
    "Configuration",
    "Timings",
    "duration_text",
    "load",
    "parse",
    "parse_address",
    "parse_duration",
]
