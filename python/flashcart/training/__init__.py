"""Training and evaluation of a model on labelled structures."""
