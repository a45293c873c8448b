"""The loads, each a process of its own, the same for either broker."""
