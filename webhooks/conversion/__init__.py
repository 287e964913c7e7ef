"""Converts objects between v1beta1 and v1beta2.  Pure: no clock, no API server, one object at a time.

One file per kind that needs it, one line of registration in `catalog.py`.  Every object of v1beta2 is the same again
after a way to v1beta1 and back.  An object of v1beta1 comes back in the present words: `Borrow` and `Preempt` as
`MayStopSearch`, `admissionChecks` as `admissionChecksStrategy`, and without status fields that kqueue does not write.
An annotation keeps fields that a user wrote in v1beta1 and that v1beta2 does not have (`kept.py`).
"""
