"""`python -m pipeline`, which `tidemark pipeline` becomes."""

import sys

from pipeline.commands import main

if __name__ == "__main__":
    sys.exit(main())
