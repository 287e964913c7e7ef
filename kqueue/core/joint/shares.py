"""Loads as thousandths of what there is."""

from __future__ import annotations

import numpy as np

from kqueue.core.joint.costs import PLACE_MAX
from kqueue.core.topology.tree import Ints

_LARGEST = 1 << 53


def thousandths(load: Ints, total: Ints) -> Ints:
    """Return the load of each leaf in thousandths, at most `PLACE_MAX`; leaves with nothing have this load."""
    there = total > 0
    scale = 1000 if not len(load) or int(load.max()) < _LARGEST else 1
    part = load * scale // np.where(there, total if scale > 1 else np.maximum(total // 1000, 1), 1)
    return np.where(there, np.minimum(part, PLACE_MAX), PLACE_MAX)
