"""Workloads that run on worker clusters: where their copies should be, and what the copies mean.  Pure.

facts       what is known of a workload, and of its copy on each worker cluster
likeness    how the spec of a copy differs from the workload's
dispatch    the clusters that get a copy of a waiting workload
decision    the steps on each cluster, and the changes of the workload, by all facts
defaults    jobs that name no controller and whose queue sends them away, as the webhook completes them
copies      the objects that are created on worker clusters, and the status that comes back

This package does not write, reads no clock and imports no controller.
"""
