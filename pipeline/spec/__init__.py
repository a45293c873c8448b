"""What a pipeline's YAML says, as values."""

from pipeline.spec.model import (
    Dedupe,
    FileSink,
    LakeSource,
    Pipeline,
    Sink,
    Source,
    Step,
    TopicSink,
    TopicSource,
    Watermark,
)
from pipeline.spec.reading import load

__all__ = [
    "Dedupe",
    "FileSink",
    "LakeSource",
    "Pipeline",
    "Sink",
    "Source",
    "Step",
    "TopicSink",
    "TopicSource",
    "Watermark",
    "load",
]
