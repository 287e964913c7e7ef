"""Gangs: pods that start together, in the forms by which users group them.  Pure; used by reconcilers and webhooks.

    members   the order of members, and which of them count
    compose   the Workload of a gang, from its members
    match     which members an existing Workload represents
    counts    the state of a gang, and the members to start or stop

Nothing here writes, reads a clock or knows a controller.
"""
