"""Devices that pods claim (dynamic resource allocation): their quota, and their number on each host."""
