"""How we talk to the API server.

Client (verbs, lanes, retries), reflector and store (one kind, kept true), work queue and controller (keys in,
reconciles out), leader election, certificates, the event loop.  Decoders and keys are handed in: this room knows no
Workload, and it decides nothing about queues.  `kubeconfig_library` is the one module that knows `kubernetes_asyncio`.
"""
