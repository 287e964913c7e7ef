"""Where pods go: trees of domains, free capacity, counting and placement.  Knows no Kubernetes object."""
