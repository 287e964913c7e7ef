"""Definitions of other projects' kinds whose controllers the sandbox simulates."""

from __future__ import annotations

from pathlib import Path

SIMULATED = Path(__file__).resolve().parent / "crds"
"""A folder with one YAML file per kind, with the fields that are simulated."""
