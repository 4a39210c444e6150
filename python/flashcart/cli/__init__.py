"""Command-line tools; nothing heavy is imported before arguments are parsed."""
