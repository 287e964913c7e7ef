"""What people ask of the controller: read-only answers, served behind the API server's aggregation layer.

Here: the server, who may ask, and the views: pending workloads, explanations, summaries.  Never: decisions, or writes
to the cluster, but for the APIServices that lead here (`registration.py`).  Every replica serves, also one that does
not lead.
"""
