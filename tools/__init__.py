"""What is generated from the code and committed: completions/, man/, docs/errors.md. `python -m tools.generate`."""
