"""Why a query failed, in a sentence, and whether trying again may help."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tidemark.pipeline.checkpoint import WHAT_TO_DO

# What a broker that restarts, a network that stumbles or a worker that is killed leaves in a failed query's message.
_PASSING = re.compile(
    r"TimeoutException|TimeoutError|Timed out|_TRANSPORT|_ALL_BROKERS_DOWN|_TIMED_OUT|DisconnectException"
    r"|NetworkException|Python worker exited unexpectedly|Connection refused|Connection reset"
    # The connector 4.1.1 may die in its own progress report, after it has finished a batch that a killed run began.
    r"|NullPointerException|Cannot invoke \".*\" because \".*\" is null|failed to connect back"
    r"|BatchesUnreadable|RegistryAway|_FENCED|PRODUCER_FENCED"
    r"|INVALID_PRODUCER_EPOCH|NOT_COORDINATOR|COORDINATOR_|CoordinatorNotAvailable|NotLeaderOrFollower"
    # An executor that is gone, with what it kept of a table or a batch.
    r"|CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND|Checkpoint block rdd_\d+_\d+ not found|ExecutorLostFailure|FetchFailed"
    r"|LakeChanged"
    # Another writer was quicker: the batch is tried again on what it left.
    r"|Concurrent(Write|Append|Delete\w*|Transaction)Exception|MetadataChangedException|ProtocolChangedException"
    r"|DELTA_(CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED)|iceberg\.exceptions\.Commit\w+Exception"
    r"|LeaderNotAvailable|_STATE|EOFException|No resolvable bootstrap|fetching offsets|UnknownTopicOrPartition"
)
_LOSS = re.compile(
    r"data may have been lost|missed because they are not available|DATA_LOSS|OffsetOutOfRange|KAFKA_DATA_LOSS|"
    r"earliest offset|have been aged out"
)
_REPORT = re.compile(r"NullPointerException(?s:.*)KafkaMicroBatchStream\S*metrics")
_MALFORMED = re.compile(r"Malformed record in \S+ at offset \d+")
_DAMAGED = re.compile(
    r"\[(?P<what>CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED|CANNOT_LOAD_STATE_STORE\.CANNOT_READ_\w+)\](?P<how>[^\n]*)"
)
_MISMATCH = re.compile(r"(CheckpointMismatch|TableChanged): (?P<what>[^\n]+)")
_TOO_SLOW = re.compile(
    r"TransactionTooSlow: Batch (?P<batch>\d+) is too large for one transaction: "
    r"(?P<rows>\d+) rows in (?P<seconds>\d+) s"
)
_CHANGED_STATE = re.compile(
    r"\[(?P<what>STATE_STORE_\w*SCHEMA\w*|STATE_STORE_\w*NOT_COMPATIBLE|STREAMING_STATEFUL_OPERATOR_NOT_MATCH\w*)[\w.]*\]"
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in ', re.MULTILINE)
_NOT_THEIRS = re.compile(r"/site-packages/|/pyspark[./]|/tidemark[/.]|/pipeline/|/lib/python|^<|/py4j")
_MORE = re.compile(r"\.\.\. \d+ more")
_LEFT_OVER = re.compile(r"LeftOver: (?P<what>[^\n]+)")
_PYTHON = re.compile(
    r"^(?P<what>[A-Za-z_.]*(Error|Exception|Failed|Unreadable|Disagree|LeftOver|DataLoss|LakeChanged): [^\n]+)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TooSlow:
    """An attempt at a batch that outlived its transaction."""

    batch: int
    rows: int
    seconds: float


def too_slow(message: str) -> TooSlow | None:
    found = _TOO_SLOW.search(message)
    if found is None:
        return None
    return TooSlow(batch=int(found["batch"]), rows=int(found["rows"]), seconds=float(found["seconds"]))


def text_of(failure: Any) -> str:
    """All that a failed query's exception says: Spark's own words, without the plan, then the cause's stack trace."""
    reported = str(failure).partition("=== Streaming Query ===")[0].strip()
    cause = getattr(failure, "_cause", None)
    trace = None if cause is None else getattr(cause, "_stackTrace", None) or str(cause)
    return reported if trace is None else f"{reported}\n{trace}"


def may_pass(message: str) -> bool:
    """Would the same batch, tried again from the checkpoint, perhaps go through?"""
    for_good = (_MALFORMED, _DAMAGED, _MISMATCH, _CHANGED_STATE)
    if is_loss(message) or any(each.search(message) for each in for_good):
        return False
    return bool(_PASSING.search(message))


def is_loss(message: str) -> bool:
    return bool(_LOSS.search(message))


def sentence(message: str) -> str:
    """The one line of a stack trace that says what happened."""
    if found := _MALFORMED.search(message):
        return f"{found[0]}; set 'on_malformed: count' or 'dead_letter' to go on past such records."
    if found := _MISMATCH.search(message):
        return found["what"]
    if found := _CHANGED_STATE.search(message):
        return (
            f"An aggregation, join or dedupe has changed since the checkpoint was begun, and its state does not fit "
            f"({found['what']}). Put the step back as it was; or start with an empty checkpoint, and new outputs."
        )
    if found := _TOO_SLOW.search(message):
        return f"{found[0].removeprefix('TransactionTooSlow: ')}, and its time was over."
    if _LEFT_OVER.search(message):
        return "Another run of this pipeline has taken over its sinks."
    if found := _DAMAGED.search(message):
        return f"The checkpoint is damaged: {_shortened(found['how'].strip()).rstrip('.')}. {WHAT_TO_DO}"
    if _REPORT.search(message):
        return "Spark's connector finished a batch that an earlier run had begun, and failed in its report of it."
    lines = [line.strip() for line in message.splitlines() if _says_something(line.strip())]
    caused = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    python = [f"{_place(message, found.start())}{found['what']}" for found in _PYTHON.finditer(message)]
    reported = (python or caused or lines or ["the query stopped without a reason"])[-1]
    return f"{_shortened(reported).rstrip('.')}."


def _place(message: str, end: int) -> str:
    """The user's file and line that a Python exception came from, if it is from one of theirs."""
    frames = [each for each in _FRAME.finditer(message, 0, end) if not _NOT_THEIRS.search(each["file"])]
    return f"{frames[-1]['file'].rpartition('/')[2]}, line {frames[-1]['line']}: " if frames else ""


def _says_something(line: str) -> bool:
    return bool(line) and not line.startswith("at ") and _MORE.fullmatch(line) is None


def _shortened(text: str) -> str:
    text = re.sub(r"^([a-z]+\.)+([A-Z]\w+): ", r"\2: ", text)
    return text if len(text) <= 400 else text[:400] + " …"
