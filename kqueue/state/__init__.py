"""The present state: quota usage, queues, node ledger, snapshots. Plain functions on one event loop change it."""
