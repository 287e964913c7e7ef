"""An in-memory Kubernetes API server with a simulated cluster.  Knows nothing of queueing."""
