"""Start times of waiting workloads: the child process that computes them, and the messages to it."""
