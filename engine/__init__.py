"""The engine: a process that owns one model, schedules requests over it and speaks the v1 engine-core protocol.

It only ever connects out and knows nothing of the command line tool."""

__version__ = "0.1.0"
