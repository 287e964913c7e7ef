"""Rounds of joint placement: when they begin, the process that plans them, and how plans are applied."""
