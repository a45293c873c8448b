"""Processes that do a log's long work beside the broker: how they are started, and how the two talk."""
