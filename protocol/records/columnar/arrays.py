"""Names for the arrays of this package. Imported for type checking only: it needs numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    UInt8s = npt.NDArray[np.uint8]
    UInt64s = npt.NDArray[np.uint64]
    Bools = npt.NDArray[np.bool_]
