"""The server's own keys: names, how a value is read and what is valid, what people are told. The table of them in
docs/operations.md is made from here; what is true when nothing is said is in `BrokerConfig`. Topic keys are in `config`.
"""

from .key import BrokerKey as BrokerKey
from .security import SECURITY_KEYS as SECURITY_KEYS
from .table import BROKER_KEYS as BROKER_KEYS
