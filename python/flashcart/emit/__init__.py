"""Plans to source text. Knows neither sympy nor torch objects: what it returns is a string."""
