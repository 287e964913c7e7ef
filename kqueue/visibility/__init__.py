"""Read-only views of the controller for people, served behind the API server's aggregation layer.

This room has the server, the rights of its users, and the views: pending workloads, explanations, summaries.  It makes
no decisions, and writes only its own APIServices (`registration.py`).  Every replica serves.
"""
