"""Checks of the installation from outside, step by step: each step has its time, and a remedy if it fails.

No step talks to the controller directly.  Only the canary changes the cluster, and it deletes its objects.
"""
