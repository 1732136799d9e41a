"""Speed and memory against targets, as ratios and sums inside one run. Never part of the tests."""
