"""The largest whole numbers of the API's integer types.  Imports nothing, so jobs need no models to read them."""

from __future__ import annotations

from typing import Final

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
