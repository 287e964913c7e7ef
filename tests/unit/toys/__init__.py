"""Toys: the smallest parts of each kind that others may add, one file each."""
