"""Bringing jobs, groups of pods and pods that run already under management, while no controller manages them.

`mapping` reads the rules that map pods to queues, `world` reads the cluster, `units` finds what is imported as a whole,
`draft` makes its Workload, `members` and `places` find the pod sets, flavors and domains of its pods, `plan` decides
about each unit (all pure), `run` writes.
"""
