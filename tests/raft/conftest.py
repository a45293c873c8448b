"""The simulation is a package of its own beside the tests; this makes it importable."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
