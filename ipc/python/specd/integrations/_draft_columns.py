"""DraftColumns gives specd the draft rows of a drafter whose vocabulary is smaller than the model's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dlpack import Array
from ..engine import Engine


class DraftColumns:
    """The columns that the rows of a drafter have for specd. Binds the map of a narrow drafter, and then the
    kind of its rows.

    drafter: its model may have draft_id_to_target_id, which is d2t of an EAGLE-3 head: ids less their
      columns. Without it, or if it has an entry for each id of the engine, rows have a column for each id.
    """

    def __init__(self, engine: Engine, drafter: Any, kind: str):
        offsets = _offsets_of(drafter)
        self._ids: Array | None = None
        if offsets is not None and len(offsets) < engine.vocab_size:
            engine.draft_map(offsets, offsets=True)
            self._ids = offsets + np.arange(len(offsets))
        engine.rows(1, "draft", kind=kind)

    def of(self, rows: Any) -> Any:
        """Rows of the drafter's own columns. The engine scatters them into a column for each id, with no
        probability elsewhere, so the other columns say nothing."""
        if rows is None or self._ids is None or rows.shape[-1] == len(self._ids):
            return rows
        return rows[:, self._ids]


def _offsets_of(drafter: Any) -> Array | None:
    offsets = getattr(getattr(drafter, "model", None), "draft_id_to_target_id", None)
    if offsets is None:
        return None
    return np.asarray(offsets.cpu().numpy(), np.int64)
