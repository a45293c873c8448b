"""Listeners and connections: from bytes to a handler and back, in order."""
