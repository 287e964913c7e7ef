"""The present state: quota usage, queues, node ledger, snapshots.  Changed by plain functions on one event loop."""
