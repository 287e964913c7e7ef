"""Bringing pods that run already under management, while no controller manages pods.

`mapping` reads the rules that map pods to queues, `world` reads the cluster, `plan` decides about each pod (pure),
`run` writes.
"""
