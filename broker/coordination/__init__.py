"""Shared by group and transaction coordinators: state in an internal topic, replayed by each partition's leader."""
