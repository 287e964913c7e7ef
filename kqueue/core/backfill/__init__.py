"""Backfill by time: the first workload in line that does not fit has a planned start, and others go before it only if
they do not delay it.
"""
