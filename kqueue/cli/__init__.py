"""The command line: flags and printing.  The work of a command is in the rooms below."""
