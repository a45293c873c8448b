"""Why a query failed, in a sentence, and whether trying again may help."""

from __future__ import annotations

import re
from typing import Any

from tidemark.pipeline.checkpoint import WHAT_TO_DO

# What a broker that restarts, a network that stumbles or a worker that is killed leaves in a failed query's message.
_PASSING = re.compile(
    r"TimeoutException|TimeoutError|Timed out|_TRANSPORT|_ALL_BROKERS_DOWN|_TIMED_OUT|DisconnectException"
    r"|NetworkException|Python worker exited unexpectedly|Connection refused|Connection reset"
    # The connector 4.1.1 may die in its own progress report, after it has finished a batch that a killed run began.
    r"|NullPointerException|Cannot invoke \".*\" because \".*\" is null|failed to connect back"
    r"|BatchesUnreadable|_FENCED|PRODUCER_FENCED"
    r"|INVALID_PRODUCER_EPOCH|NOT_COORDINATOR|COORDINATOR_|CoordinatorNotAvailable|NotLeaderOrFollower"
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
_LEFT_OVER = re.compile(r"LeftOver: (?P<what>[^\n]+)")
_PYTHON = re.compile(
    r"^(?P<what>[A-Za-z_.]*(Error|Exception|Failed|Unreadable|Disagree|LeftOver): [^\n]+)$", re.MULTILINE
)


def text_of(failure: Any) -> str:
    """All that a failed query's exception says: Spark's own words, without the plan, then the cause's stack trace."""
    reported = str(failure).partition("=== Streaming Query ===")[0].strip()
    cause = getattr(failure, "_cause", None)
    trace = None if cause is None else getattr(cause, "_stackTrace", None) or str(cause)
    return reported if trace is None else f"{reported}\n{trace}"


def may_pass(message: str) -> bool:
    """Would the same batch, tried again from the checkpoint, perhaps go through?"""
    for_good = is_loss(message) or _MALFORMED.search(message) or _DAMAGED.search(message)
    return not for_good and bool(_PASSING.search(message))


def is_loss(message: str) -> bool:
    return bool(_LOSS.search(message))


def sentence(message: str) -> str:
    """The one line of a stack trace that says what happened."""
    if found := _MALFORMED.search(message):
        return f"{found[0]}; set 'on_malformed: count' or 'dead_letter' to go on past such records."
    if _LEFT_OVER.search(message):
        return "Another run of this pipeline has taken over its sinks."
    if found := _DAMAGED.search(message):
        return f"The checkpoint is damaged: {_shortened(found['how'].strip()).rstrip('.')}. {WHAT_TO_DO}"
    if _REPORT.search(message):
        return "Spark's connector finished a batch that an earlier run had begun, and failed in its report of it."
    lines = [line.strip() for line in message.splitlines() if line.strip() and not line.strip().startswith("at ")]
    caused = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    python = [found["what"] for found in _PYTHON.finditer(message)]
    reported = (python or caused or lines or ["the query stopped without a reason"])[-1]
    return f"{_shortened(reported).rstrip('.')}."


def _shortened(text: str) -> str:
    text = re.sub(r"^([a-z]+\.)+([A-Z]\w+): ", r"\2: ", text)
    return text if len(text) <= 400 else text[:400] + " …"
