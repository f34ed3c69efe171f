"""`python -m migrator` is `migrator`."""

import sys

from migrator.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
