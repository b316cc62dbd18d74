"""Topic configuration: Kafka's keys, their types, defaults and ranges, and ours beside them.

A `LogConfig` is frozen; topic overrides are laid over the server's defaults with `LogConfig.overlay`. Unknown keys and
values outside their range are refused by name. Keys of Kafka's that have no meaning on one node without tiered storage are
checked and kept, without effect. The tables of docs/reference/configuration.md are made from `TOPIC_KEYS` and `KEPT_KEYS`.
Source of names and defaults: Kafka's TopicConfig and LogConfig (4.1). `settings` holds the server's own keys.
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
