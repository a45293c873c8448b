"""What a pipeline's YAML says, as values."""

from tidemark.pipeline.spec.model import (
    Dedupe,
    FileSink,
    LakeSource,
    Lineage,
    Maintenance,
    Pipeline,
    Sink,
    Source,
    Step,
    TopicSink,
    TopicSource,
    Watermark,
    key_subject,
    value_subject,
    words_in,
)
from tidemark.pipeline.spec.reading import WITH_SECRETS, load

__all__ = [
    "WITH_SECRETS",
    "Dedupe",
    "FileSink",
    "LakeSource",
    "Lineage",
    "Maintenance",
    "Pipeline",
    "Sink",
    "Source",
    "Step",
    "TopicSink",
    "TopicSource",
    "Watermark",
    "key_subject",
    "load",
    "value_subject",
    "words_in",
]
