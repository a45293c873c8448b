"""Transactions with kafka-clients (all cases in one JVM); TransactionsCommand; DumpLogSegments on what we write."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable

import pytest
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic, producer
from harness.java import ToolRun, run_tool
from harness.java_programs import SOURCES, run_cases
from harness.waiting import eventually

CASES = re.findall(r'cases\.put\("(\w+)",', (SOURCES / "Transactions.java").read_text())
COMMAND = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture(scope="module")
def broker(session_brokers: Callable[..., BrokerProcess]) -> BrokerProcess:
    return session_brokers({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"})


@pytest.fixture(scope="module")
def results(broker: BrokerProcess) -> dict[str, str]:
    return run_cases("Transactions", broker.bootstrap)


@pytest.mark.parametrize("case", CASES)
def test_kafka_clients(results: dict[str, str], case: str) -> None:
    assert results.get(case, "the program ended before this case") == ""


def test_transactions_command_lists_describes_finds_and_aborts(broker: BrokerProcess, topic: str) -> None:
    def tool(*arguments: str) -> ToolRun:
        return run_tool(COMMAND, "--bootstrap-server", broker.bootstrap, *arguments).checked()

    name = f"tool-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, topic)
    sender = producer(broker.bootstrap, transactional_id=name)
    sender.init_transactions(30)
    sender.begin_transaction()
    sender.produce(topic, b"open", partition=0)
    sender.flush(30)
    listed = [line.split() for line in tool("list").lines]
    assert [line[-1] for line in listed if line[0] == name] == ["Ongoing"]
    assert f"{topic}-0" in tool("describe", "--transactional-id", name).stdout
    producers = tool("describe-producers", "--topic", topic, "--partition", "0").lines
    heads, values = producers[0].split(), producers[1].split()
    assert dict(zip(heads, values, strict=True))["CurrentTransactionStartOffset"] == "0"
    # What its coordinator knows does not hang, however long it has been open.
    hanging = tool("find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
    assert topic not in hanging.stdout
    tool("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    lines = eventually(lambda: tool("describe-producers", "--topic", topic, "--partition", "0").lines)
    assert dict(zip(lines[0].split(), lines[1].split(), strict=True))["CurrentTransactionStartOffset"] == "None"


def test_dump_log_segments_reads_the_transaction_log(new_broker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = new_broker({"transaction.state.log.num.partitions": "1"})
    create_topic(broker.bootstrap, topic)
    sender = producer(broker.bootstrap, transactional_id="dumped")
    sender.init_transactions(30)
    for commit in (True, False):
        sender.begin_transaction()
        sender.produce(topic, b"x", partition=0)
        sender.flush(30)
        if commit:
            sender.commit_transaction(30)
        else:
            sender.abort_transaction(30)
    broker.stop()
    name = "00000000000000000000.log"
    dump = ("org.apache.kafka.tools.DumpLogSegments", "--files")
    states = run_tool(*dump, str(broker.data / "__transaction_state-0" / name), "--transaction-log-decoder").checked()
    found = [int(each) for each in re.findall(r'"transactionStatus":(\d)', states.stdout)]
    # Empty; then Ongoing, PrepareCommit, CompleteCommit; Ongoing, PrepareAbort, CompleteAbort
    assert found == [0, 1, 2, 4, 1, 3, 5]
    records = run_tool(*dump, str(broker.data / f"{topic}-0" / name), "--print-data-log").checked()
    assert re.findall(r"endTxnMarker: (\w+)", records.stdout) == ["COMMIT", "ABORT"]
