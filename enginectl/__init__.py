"""The operator's tool: short commands and one supervisor per engine, spoken to over ZMQ."""

__version__ = "0.1.0"
