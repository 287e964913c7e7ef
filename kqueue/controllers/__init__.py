"""The reconcilers, one per kind of object, and the parts that they share."""
