"""Joint placement: all waiting gangs of a round are planned together."""
