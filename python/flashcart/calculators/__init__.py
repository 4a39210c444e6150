"""Calculators: ASE, and the Python side of the LAMMPS plugin. Loaded on first use."""

from __future__ import annotations

__all__ = ["FlashCartCalculator"]


def __getattr__(name: str) -> object:
    """Import the ASE calculator on first use (PEP 562)."""
    if name == "FlashCartCalculator":
        from flashcart.calculators.ase import FlashCartCalculator

        return FlashCartCalculator
    raise AttributeError(f"module 'flashcart.calculators' has no attribute {name!r}")
