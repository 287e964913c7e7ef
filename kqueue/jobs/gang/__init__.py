"""Gangs: pods that start together, in the forms by which users group them.  Pure; used by reconcilers and webhooks.

    key           keys of gangs
    value         names, wishes, records, numbers
    dialect       the interface of dialects
    registry      all dialects, and the gang of a pod
    kueue_groups  the first dialect: Kueue's annotations and labels
    coscheduling_labels  the dialect of two labels
    pods          views of pods with their gang
    members       the order of members, and which of them count
    compose       the Workload of a gang, from the wish of its dialect and its members
    extras        members beyond the quorum, which are queued alone
    naming        names of Workloads
    match         which members an existing Workload represents
    counts        the state of a gang, and the members to start or stop

This package does not write, reads no clock and imports no controller.
"""
