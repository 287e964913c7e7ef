"""kqueue decides when a batch job may start and where in the data centre its pods go.

A pure core decides; a thin asyncio shell watches, asks the core, and writes.  The rooms, top to bottom:

    cli                      commands
    operations               what administrators do: checks, import, migration, removal
    manager                  the processes that serve a cluster
    controllers, scheduling  reconcilers; the shell of the scheduling cycle
    jobs                     one file per job kind: JSON in, values or merge patches out
    state, runtime           cache and queues; client, watches and work queues
    model                    from objects of the API to values of the core
    api, core                the kinds that users write; decisions
    kube                     the vocabulary of Kubernetes

`docs/architecture.md` names all rooms.

`sandbox` plays the cluster and is used by the command line and by tests only.
"""

__version__ = "0.1.0"
