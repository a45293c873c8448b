"""Hypothesis judges what a property says, not how long a busy machine takes to say it; `make check` tries less."""

import os
import sys
from pathlib import Path

from hypothesis import settings

sys.path.append(str(Path(__file__).parent / "simulation"))  # the scenarios, which the command line uses, too

settings.register_profile("no deadline", deadline=None, max_examples=25 if "TIDEMARK_HISTORIES" in os.environ else 100)
settings.load_profile("no deadline")
