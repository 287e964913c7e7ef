"""Read-only views of the controller for people, served behind the API server's aggregation layer.

Here: the server, who may ask, and the views: pending workloads, explanations, summaries.  Never: decisions, or writes
to the cluster, but for the APIServices that lead here (`registration.py`).  Every replica serves, also one that does
not lead.
"""
