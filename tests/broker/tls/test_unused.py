"""A broker without a TLS listener loads nothing of it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from tidemark import embedded
with embedded() as broker:
    assert broker.port
parts = ("tidemark.broker.tls", "tidemark.certificates", "cryptography")
print([name for name in sys.modules if name.startswith(parts)])
"""


def test_a_plain_broker_loads_neither_tls_nor_cryptography() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"
