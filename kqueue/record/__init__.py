"""The record of decisions: what each plan was asked and what it answered, written to disk and replayed later.

Here live the written form of the planner's values, files of entries that name each other's hashes, the ring of files
that a controller fills, and replays.  Nothing here decides, and nothing here asks a cluster.
"""
