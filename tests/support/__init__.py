"""Helpers of the tests: waiting with a deadline, tiny models, bare peers, real engines."""
