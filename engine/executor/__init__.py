"""Runs the model for one scheduled step, in this process or in others."""
