"""What kqueue would leave behind in a cluster, and how it is released."""
