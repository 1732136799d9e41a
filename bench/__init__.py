"""Speed and memory against targets, as ratios and sums inside one run. Never part of the tests."""

import sys
from pathlib import Path

# The processes under measurement are started as the tests start them.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
