"""`python -m tidemark.pipeline`, which `tidemark pipeline` becomes."""

import sys

from tidemark.pipeline.commands import main

if __name__ == "__main__":
    sys.exit(main())
