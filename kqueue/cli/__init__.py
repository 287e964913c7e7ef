"""The command line.  Wiring and rendering, no logic."""
