"""Running contractions: the cache of generated files and the differentiable op."""
