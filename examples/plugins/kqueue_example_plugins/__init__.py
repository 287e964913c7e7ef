"""Two example plugins of kqueue: an order, and a filter that is also a permit."""
