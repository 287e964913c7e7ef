"""Defragmentation plans for administrators: read from the objects of the cluster, stored, approved, ended."""
