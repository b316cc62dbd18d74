"""All targets by name."""

from __future__ import annotations

from typing import Final

from tests.fuzzing import coordinator_records, kafka_requests, native_frames, opened_logs, record_batches, stored_files
from tests.fuzzing.target import Target

TARGETS: Final[dict[str, Target]] = {
    module.TARGET.name: module.TARGET
    for module in (kafka_requests, native_frames, record_batches, coordinator_records, stored_files, opened_logs)
}
