"""The Helm chart, rendered."""
