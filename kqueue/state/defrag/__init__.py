"""Defragmentation plans of a state: which workloads may move, the plan for a goal, and the plan as an object."""
