"""Input for the shipped pipelines: the same seed makes the same records."""

from pipeline.generators.producing import GENERATORS, generate

__all__ = ["GENERATORS", "generate"]
