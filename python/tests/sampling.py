"""How much of the slow suites is run: a part, or with `MEMFIT_ALL=1` all of it."""

import os

ALL = os.environ.get("MEMFIT_ALL") == "1"
# Ranks of trainings. Four of them on two cores take long.
WORLDS = [2, 4] if ALL else [2]
