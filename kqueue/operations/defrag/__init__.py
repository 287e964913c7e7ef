"""Defragmentation plans for administrators: computed from the objects of the cluster, stored, approved, ended."""
