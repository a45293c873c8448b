"""Hypothesis judges what a property says, not how long a busy machine takes to say it."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
