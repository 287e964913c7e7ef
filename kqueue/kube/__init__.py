"""Kubernetes' own vocabulary, for the sandbox as well as for kqueue's rooms.

Each rule that both need has its one version here.  The room imports nothing of kqueue but `clock`, `documents`,
`errors` and `isolation`.
"""
