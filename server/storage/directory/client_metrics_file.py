"""`client-metrics.json`: which metrics of clients are wanted (KIP-714), by subscription."""

from __future__ import annotations

from typing import Final

from .overrides_file import Overrides, OverridesFile

CLIENT_METRICS: Final = OverridesFile("client-metrics.json", "subscriptions", "no metrics are asked for")

CLIENT_METRICS_FILE: Final = CLIENT_METRICS.name
ClientMetricsState = Overrides
encode_client_metrics, decode_client_metrics = CLIENT_METRICS.encode, CLIENT_METRICS.decode
read_client_metrics, write_client_metrics = CLIENT_METRICS.read, CLIENT_METRICS.write
