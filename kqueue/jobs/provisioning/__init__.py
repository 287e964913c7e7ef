"""ProvisioningRequests of workloads: which requests there should be, and what their states mean.  Pure.

naming      names of requests and pod templates, and the number of an attempt
wanted      the pod sets that need nodes, their pod templates, and the request
meaning     the state of a check, and the requests to create and delete

This package does not write, reads no clock and imports no controller.
"""
