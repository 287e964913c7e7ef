"""How the parts of a controller process are put together: one module per part."""
