"""Intermediate representation: polynomials over indexed rows, closed under differentiation. numpy only."""
