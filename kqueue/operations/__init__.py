"""Work of administrators: check a cluster, label nodes, import pods, migrate from Kueue, remove kqueue.

Each package works on values and on a client, and prints nothing; `kqueue.cli` has the commands and prints.
"""
