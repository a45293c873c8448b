from __future__ import annotations

import os
import subprocess
import sys

from tidemark.broker.core.api_table import HANDLERS, api_table, served_on


def test_every_file_in_handlers_is_an_api() -> None:
    files = {name.removesuffix(".py") for name in os.listdir(HANDLERS)} - {"__init__", "__pycache__"}
    assert files == {entry.module for entry in api_table().values()}


def test_clients_are_served_what_is_theirs_and_controllers_what_is_for_them() -> None:
    names = {entry.name for entry in served_on("broker").values()}
    assert {"Produce", "Fetch", "CreateTopics"} <= names
    assert not names & {"AlterPartition", "BrokerRegistration", "RaftMessage"}
    names = {entry.name for entry in served_on("controller").values()}
    assert {"AlterPartition", "BrokerRegistration", "RaftMessage", "CreateTopics", "ApiVersions"} <= names
    assert "Produce" not in names


def test_tables_are_in_the_order_of_the_keys() -> None:
    assert list(served_on("broker")) == sorted(served_on("broker"))


def test_the_table_loads_no_handler() -> None:
    script = (
        "import sys; from tidemark.broker.core.api_table import served_on; assert 3 in served_on('broker')\n"
        "assert not [name for name in sys.modules if name.startswith('tidemark.broker.handlers')]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
