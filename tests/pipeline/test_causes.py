"""Why a query failed, in a sentence."""

import pytest

from tidemark.pipeline import causes


@pytest.mark.parametrize(
    "message",
    [
        "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment",
        "SparkException: Python worker exited unexpectedly (crashed)",
        'Cannot invoke "scala.collection.immutable.Map.size()" because "offsets" is null',
        "org.apache.spark.SparkException: [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_5_0 not found!",
        "io.delta.exceptions.ProtocolChangedException: [DELTA_PROTOCOL_CHANGED] ProtocolChangedException: The protocol",
        "org.apache.iceberg.exceptions.CommitFailedException: Requirement failed: branch main has changed",
        'cimpl.KafkaException: KafkaError{code=_TRANSPORT,val=-195,str="x"}',
    ],
)
def test_what_a_restart_may_mend_is_known(message: str) -> None:
    assert causes.may_pass(message)


def test_loss_and_malformed_records_are_not_tried_again() -> None:
    assert not causes.may_pass("Some data may have been lost … TimeoutException")
    told = "Job aborted: [USER_RAISED_EXCEPTION] Malformed record in t-0 at offset 17 SQLSTATE: P0001"
    assert not causes.may_pass(told)
    assert causes.sentence(told).startswith("Malformed record in t-0 at offset 17; set 'on_malformed:")


def test_the_cause_is_taken_from_a_stack_trace() -> None:
    trace = "Job aborted.\n\tat a.B.c(D.scala:1)\nCaused by: java.io.IOException: No space left on device\n\tat x"
    assert causes.sentence(trace) == "IOException: No space left on device."


def test_the_plan_is_left_out_and_the_cause_told() -> None:
    cause = RuntimeError()
    cause._stackTrace = "java.io.IOException: disk full\n\tat a.B.c(D.scala:1)"  # type: ignore[attr-defined]
    failed = RuntimeError("[STREAM_FAILED] terminated with exception: null\n=== Streaming Query ===\n+- Plan: x")
    failed._cause = cause  # type: ignore[attr-defined]
    text = causes.text_of(failed)
    assert "Plan" not in text
    assert causes.sentence(text) == "IOException: disk full."


def test_the_connectors_failing_report_is_known() -> None:
    trace = (
        'java.lang.NullPointerException: Cannot invoke "scala.collection.IterableOps.map(scala.Function1)"\n'
        "\tat org.apache.spark.sql.kafka010.KafkaMicroBatchStream$.metrics(KafkaMicroBatchStream.scala:519)"
    )
    assert causes.may_pass(trace)
    assert "failed in its report" in causes.sentence(trace)


def test_damaged_state_is_not_tried_again() -> None:
    told = (
        "[CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED] Checksum verification failed. File: file:/c/state/0/0/1.delta"
    )
    message = f"[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred\nCaused by: SparkException: {told}\n\tat x"
    assert not causes.may_pass(message)
    assert "damaged: Checksum verification failed. File: file:/c/state/0/0/1.delta. Restore" in causes.sentence(message)


def test_a_changed_aggregation_is_told_with_what_to_do() -> None:
    trace = (
        "[STREAM_FAILED] Query terminated with exception: Job aborted\n"
        "Caused by: org.apache.spark.sql.execution.streaming.state.StateStoreValueSchemaNotCompatible: "
        "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema does not match existing state value schema.\n"
        "\tat a.B.c(D.scala:1)\n\t... 21 more"
    )
    told = causes.sentence(trace)
    assert told.startswith("An aggregation, join or dedupe has changed since the checkpoint was begun")
    assert "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE" in told
    assert not causes.may_pass(trace)


def test_how_many_more_lines_there_are_is_no_reason() -> None:
    assert causes.sentence("IOException: disk full\n\tat a.B\n\t... 21 more") == "IOException: disk full."


def test_a_batch_too_large_for_its_transaction_is_known_by_its_rate() -> None:
    told = "TransactionTooSlow: Batch 3 is too large for one transaction: 9000 rows in 901 s were not all of it, and …"
    assert causes.too_slow(told) == causes.TooSlow(batch=3, rows=9000, seconds=901.0)
    assert causes.too_slow("anything else") is None


def test_a_checkpoint_of_another_history_is_not_tried_again() -> None:
    told = "CheckpointMismatch: The checkpoint is older than what this sink has written: TimeoutException"
    assert not causes.may_pass(told)
    assert causes.sentence(told).startswith("The checkpoint is older")
