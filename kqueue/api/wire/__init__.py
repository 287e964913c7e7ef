"""What is read in bulk: msgspec structs with the used fields only, one module per API group."""
