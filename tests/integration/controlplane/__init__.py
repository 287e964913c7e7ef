"""The real control plane of integration tests, and an interface to any cluster.

`binaries` finds the programs of `make controlplane`, `plane` starts and stops them, `cluster` is the tests' interface
to a cluster, real or simulated.  No behaviour of kqueue lives here.
"""
