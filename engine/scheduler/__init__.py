"""Who runs in the next step, with which KV blocks. Imports neither zmq nor torch."""
