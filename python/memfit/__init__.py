"""memfit: makes deep-learning training and inference fit in a memory budget, exactly and provably.

```python
import memfit

plan = memfit.plan("step.json.zst", budget="60%")  # verified, or BudgetError with the budget that would do
print(memfit.explain("step.json.zst"))             # what holds the memory at the peak
print(memfit.explain("snapshot.pickle"))           # the same for a CUDA memory snapshot
memfit.report("snapshot.pickle", "report.html")    # one page to look at; of a plan or a graph, too
```

These functions need nothing but Python. `memfit.torch` needs your own PyTorch (2.11 or newer).
"""

try:
    from memfit._memfit import __version__
except ImportError as error:
    raise ImportError(
        "the native half of `memfit` is not here\n"
        "hint: `pip install .` in the repository, or `cargo xtask python` to run from the source"
    ) from error

from memfit._door import check, compare, explain, export, floor, place, plan, report, strategies, sweep
from memfit._errors import (
    BudgetError,
    BugError,
    Error,
    InputError,
    OtherGraphError,
    RankError,
    UsageError,
    VerificationError,
)
from memfit._results import (
    Check,
    Comparison,
    Device,
    Explanation,
    Floor,
    Held,
    Holder,
    Link,
    Op,
    OutOfMemory,
    Placement,
    Plan,
    Remedy,
    Result,
    Row,
    Share,
    SnapshotExplanation,
    SnapshotHolder,
    SnapshotRemedy,
    Strategies,
    Strategy,
    Sweep,
)
from memfit._sharding import Rank, Sharded, shard
from memfit._simplifying import Simplified, simplify

__all__ = [
    "BudgetError",
    "BugError",
    "Check",
    "Comparison",
    "Device",
    "Error",
    "Explanation",
    "Floor",
    "Held",
    "Holder",
    "InputError",
    "Link",
    "Op",
    "OtherGraphError",
    "OutOfMemory",
    "Placement",
    "Plan",
    "Rank",
    "RankError",
    "Remedy",
    "Result",
    "Row",
    "Sharded",
    "Share",
    "Simplified",
    "SnapshotExplanation",
    "SnapshotHolder",
    "SnapshotRemedy",
    "Strategies",
    "Strategy",
    "Sweep",
    "UsageError",
    "VerificationError",
    "__version__",
    "check",
    "compare",
    "explain",
    "export",
    "floor",
    "place",
    "plan",
    "report",
    "shard",
    "simplify",
    "strategies",
    "sweep",
]
