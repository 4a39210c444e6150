"""Where the time of a model goes: what flashcart-profile does."""
