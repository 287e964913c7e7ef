"""One file per job kind: its JSON to values and back.  Pure; shared by reconcilers and webhooks.  Never scheduling."""
