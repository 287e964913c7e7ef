"""The future of a cluster: how long workloads run, and when waiting ones start."""
