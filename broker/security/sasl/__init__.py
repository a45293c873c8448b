"""Logging in by SASL: the state machine of a connection, the server's half of each mechanism, and their users."""
