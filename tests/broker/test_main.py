"""What a broker's process does before it serves."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path


def test_a_broker_raises_its_soft_limit_of_open_files_to_the_hard_one() -> None:
    code = textwrap.dedent(
        """
        import resource
        from tidemark.broker import __main__ as program

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))

        async def serve(_config):
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
            return True

        program._serve = serve
        raise SystemExit(program.main([]))
        """
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=Path(__file__).parents[2])
