"""Admission webhooks: AdmissionReview in, AdmissionReview out.  No cache, no watch."""
