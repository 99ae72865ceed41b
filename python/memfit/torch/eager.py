"""The eager host: `enable`, `disable`, and decisions by hand."""

from types import MethodType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from memfit import _memfit
from memfit.torch import _glue


class Budget(TorchDispatchMode):
    def __init__(self, budget: int, **options: Any) -> None:
        super().__init__()
        self._eager = _memfit.Eager(_glue, budget, align=1, evictor="best", **options)
        self.__torch_dispatch__ = MethodType(self._eager.dispatch, self)

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        with torch._C._DisableTorchDispatch():
            self._eager.close()
