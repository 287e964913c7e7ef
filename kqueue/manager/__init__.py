"""The processes that serve a cluster: the controller and the webhooks.

`operator.py` puts a controller's parts together, `process.py` runs them until a signal comes, and
`wiring` has one module for each part.  The command line starts these processes.
"""
