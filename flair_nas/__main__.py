"""The command as ``python -m flair_nas``."""

import sys

from flair_nas.cli import main

sys.exit(main())
