"""The types of what rounds take. For type checkers; nothing here is looked at when a program runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, Union

import numpy as np
import numpy.typing as npt

from .dlpack import SupportsDlpack
from .rounds import Draft
from .sequence import Sequence as OpenSequence

Array: TypeAlias = npt.NDArray[Any]
# Numbers as an array of numpy, a tensor, or lists.
Numbers: TypeAlias = Union[npt.ArrayLike, SupportsDlpack]
RowArray: TypeAlias = Numbers
Rows: TypeAlias = Union[RowArray, Sequence[Union[RowArray, None]], None]
Masks: TypeAlias = Union[RowArray, Sequence[Union[RowArray, None]], None]
Ids: TypeAlias = Union[Sequence[int], npt.NDArray[np.integer[Any]], SupportsDlpack]
Drafts: TypeAlias = Union[Mapping[OpenSequence, Ids], Sequence[Draft]]
