"""While the markers of a transaction are being written, whoever asks for the next step is told to wait, not fenced."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidemark.broker.core.errors import Refused
from tidemark.broker.transactions.transaction import EPOCH_PER_TRANSACTION, Transaction, TransactionState
from tidemark.broker.transactions.transitions import Producer, ended, initialised
from tidemark.protocol.errors import ErrorCode

Ask = Callable[[Transaction, Producer], Transaction]
NOW = 1000


def end(commit: bool) -> Ask:
    return lambda old, producer: ended(
        old, producer, commit=commit, version=EPOCH_PER_TRANSACTION, new_id=None, now_ms=NOW
    )


def begin_anew(old: Transaction, producer: Producer) -> Transaction:
    return initialised(old, timeout_ms=1, expected=producer, new_id=None, now_ms=NOW)


def take_over(old: Transaction, _producer: Producer) -> Transaction:
    return initialised(old, timeout_ms=1, expected=None, new_id=None, now_ms=NOW)


@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
@pytest.mark.parametrize("epoch", [4, 5, 6], ids=["the last epoch", "the present epoch", "the next epoch"])
@pytest.mark.parametrize(
    "ask", [end(True), end(False), begin_anew, take_over], ids=["commit", "abort", "init", "another init"]
)
def test_a_producer_that_is_faster_than_the_markers_is_told_to_wait(
    state: TransactionState, epoch: int, ask: Ask
) -> None:
    """The answer to EndTxn names the next epoch before the markers are written: an abort after a commit has it."""
    pending = Transaction("id", 7, 1, producer_epoch=5, last_producer_epoch=4, state=state, client_version=2)
    with pytest.raises(Refused) as refusal:
        ask(pending, Producer(7, epoch))
    assert refusal.value.code == ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
def test_a_producer_whose_next_id_differs_is_told_to_wait_as_well(state: TransactionState) -> None:
    pending = Transaction("id", 7, 1, next_producer_id=8, producer_epoch=32766, state=state, client_version=2)
    with pytest.raises(Refused) as refusal:
        end(False)(pending, Producer(8, 0))
    assert refusal.value.code == ErrorCode.CONCURRENT_TRANSACTIONS
