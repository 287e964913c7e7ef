"""The command line: flags and printing.  What a command does is in the rooms below."""
