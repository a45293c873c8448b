"""Partitions this node hosts: append, high watermark, and those who wait for it."""
