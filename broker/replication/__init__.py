"""Partitions this node hosts: append, high watermark, and the requests that wait for it."""
