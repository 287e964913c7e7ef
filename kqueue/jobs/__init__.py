"""Adapters of job kinds, one file each: convert between a job's JSON and values.  Pure; used by reconcilers and
webhooks.
"""
