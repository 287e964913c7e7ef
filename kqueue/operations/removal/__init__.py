"""Gates and finalizers that a removed kqueue would leave behind, and their release."""
