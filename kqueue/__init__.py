"""kqueue decides when a batch job may start and where in the data centre its pods go.

A pure core decides; a thin asyncio shell watches, asks the core, and writes.  The rooms, top to bottom:

    cli                     commands and wiring
    controllers, scheduling reconcilers; the cycle's shell
    jobs                    one file per job kind: JSON in, values or merge patches out
    state, runtime          what is believed now; how we talk to the API server
    api, core               what users write; what is decided
    errors                  the error tree

`sandbox` plays the cluster and is used by the command line and by tests only.
"""

__version__ = "0.1.0"
