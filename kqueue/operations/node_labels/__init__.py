"""Checks the labels of nodes for a topology, and proposes topologies from labels.

Pure: the caller passes objects of the API server as plain values. Works without the controller.
"""
