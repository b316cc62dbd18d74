"""Topics as Arrow tables: `read`; tables as records of a topic: `write`. Needs the extra `arrow` when one is called.

What is read or written need not fit into memory: both work on a few record batches at a time.
"""

from ..client.login import LoginConfig
from ..client.tls import TlsConfig
from .reading import read
from .report import ArrowError, BadValues, Report, ValuesError, Written, WrittenPartition
from .writing.writing import write

__all__ = [
    "ArrowError",
    "BadValues",
    "LoginConfig",
    "Report",
    "TlsConfig",
    "ValuesError",
    "Written",
    "WrittenPartition",
    "read",
    "write",
]
