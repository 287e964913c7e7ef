"""What an administrator does with a cluster: checks it, labels nodes, imports pods, moves from Kueue, removes kqueue.

Each package works on values and on a client, and prints nothing; `kqueue.cli` has the commands and what they print.
"""
