"""Kafka's wire protocol and record batches: bytes to values and back. No I/O, no clock, nothing else of ours.

`schema` declares and compiles messages, `messages` holds one file per API, `apis` lists them; `headers` frames requests
and responses; `records` has everything about record batches; `errors` Kafka's error codes.
"""
