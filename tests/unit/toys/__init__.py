"""Toys: the smallest example of each extension, one file each."""
