"""Input for the shipped pipelines: the same seed makes the same records."""

from tidemark.pipeline.generators.producing import GENERATORS, generate

__all__ = ["GENERATORS", "generate"]
