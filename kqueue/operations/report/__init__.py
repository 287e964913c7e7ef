"""The report of a span of time: waits, use, packing, evictions and coverage of start times, from a record alone.

Each figure follows from recorded states and decisions.  A figure that does not follow from the record is None.
"""
