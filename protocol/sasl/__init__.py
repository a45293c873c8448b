"""SASL mechanisms as bytes: what client and server say to each other, without sockets and without users.

`scram` has the messages and formulas of RFC 5802, `client` the client's half of every mechanism.
"""
