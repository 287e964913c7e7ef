"""The real control plane that integration tests run against, and a way to talk to any cluster.

`binaries` finds what `make controlplane` built, `plane` starts and stops it, `cluster` is what a test sees of a
cluster, real or simulated.  No behaviour of kqueue lives here.
"""
