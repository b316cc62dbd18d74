"""Configuration: every key of the server, of topics, of groups and of client metrics, declared once.

`key` declares a key, and reads, checks and writes its values. `log_config` has the keys of topics, `resource_keys` those of
groups and subscriptions, `broker_config` those of the server; `broker_settings` reads these from
a file, variables and arguments. Values are frozen. Unknown keys and values outside their range are refused by name. The tables
of docs/reference/configuration.md are made from these declarations.
"""

from .key import ConfigKey as ConfigKey
from .key import check_sizes as check_sizes
from .log_config import FORMER_KEYS as FORMER_KEYS
from .log_config import KEPT_KEYS as KEPT_KEYS
from .log_config import KNOWN_KEYS as KNOWN_KEYS
from .log_config import TOPIC_KEYS as TOPIC_KEYS
from .log_config import LogConfig as LogConfig
from .log_config import check_internal_change as check_internal_change
from .values import DataPermissions as DataPermissions
from .values import DiskFullPolicy as DiskFullPolicy
from .values import Durability as Durability
from .values import DurabilityMode as DurabilityMode
from .values import GapPolicy as GapPolicy
from .values import RecordValidation as RecordValidation
