"""What a migration from Kueue has to know: its configuration, the values of its chart, and the cluster."""
