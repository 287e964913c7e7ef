"""Names of the older version and of its conversion."""

from __future__ import annotations

from typing import Final

from kqueue.api.names import GROUP, OLDER_VERSION

OLDER_API_VERSION: Final = f"{GROUP}/{OLDER_VERSION}"
"""`apiVersion` of objects in that version."""
CONVERT_PATH: Final = "/convert"
"""Path of the webhook that converts objects between the two versions."""
