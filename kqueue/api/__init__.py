"""Models of our kinds as users write them, the foreign fields that kqueue reads, and the names of the API."""
