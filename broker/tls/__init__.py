"""TLS for listeners and for the links between nodes. Loaded only where a listener asks for it.

stores → contexts → endpoints: what settings name, what OpenSSL makes of it, and what accepts and connects with it.
layer → handshakes: one connection, and the costly steps of all of them. watch → renewal: certificates that change.
"""
