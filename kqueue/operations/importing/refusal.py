"""The end of the planning of an object that cannot be imported."""


class RefusalError(Exception):
    """Says in one sentence, without the object's name, why the object cannot be imported; caught by `plan`."""
