"""Exact algebra of irreducible Cartesian tensors (sympy), lowered to contractions."""
