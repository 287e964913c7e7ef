"""Structs for objects that are read in bulk: used fields only, one module per API group."""
