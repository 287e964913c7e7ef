"""Definitions of kinds of other projects whose controllers the simulated cluster plays."""

from __future__ import annotations

from pathlib import Path

SIMULATED = Path(__file__).resolve().parent / "crds"
"""A folder with one YAML file per kind, with the fields that are played."""
