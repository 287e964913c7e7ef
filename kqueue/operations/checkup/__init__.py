"""The installation, looked at step by step from outside: each step with its time, and a remedy where it fails.

Nothing here talks to the controller directly, and nothing is changed but by the canary, which cleans up behind itself.
"""
