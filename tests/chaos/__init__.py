"""The fault campaign: leaders of a real control plane are lost again and again under load, and a judge reads the history.

`python -m tests.chaos --help` says how to run it; `make chaos` runs 200 losses.  The judge works from API objects
alone: nothing of `kqueue.core` or `kqueue.state` is imported in this package.
"""
