"""Bringing pods that run already under management, while the controller does not look.

`mapping` reads which pod goes to which queue, `world` reads the cluster, `plan` decides about each pod (pure), `run`
writes.
"""
