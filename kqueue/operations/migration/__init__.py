"""The inputs of a migration from Kueue: its configuration, the values of its chart, and the cluster."""
