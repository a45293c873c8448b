"""What hosting a shard brings along."""

from __future__ import annotations

import subprocess
import sys

RECORDS_KNOWN = """
import tidemark.broker.groups.group_shard_host
from tidemark.broker.groups.records import _TYPES
from tidemark.broker.groups.shard import REPLAY
print(sorted(_TYPES), len(REPLAY) == len(_TYPES))
"""


def test_a_log_is_never_read_before_the_records_of_both_protocols_are_known() -> None:
    """In a process of its own, as handlers are loaded when first asked for: others may have imported them here."""
    told = subprocess.run([sys.executable, "-c", RECORDS_KNOWN], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "[1, 2, 3, 4, 5, 6, 7, 8, 16] True"
