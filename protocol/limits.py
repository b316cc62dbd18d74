"""Every limit of what comes from outside, with its default and the reason for it. Checked before anything is allocated."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT32_MIN: Final = -(2**31)
UINT32_MAX: Final = 2**32 - 1
INT64_MAX: Final = 2**63 - 1

MAX_FRAME_BYTES: Final = 64 * MIB
"""Largest frame of the native protocol. Above Kafka's default fetch.max.bytes (50 MiB) plus room for the map around it."""

MAX_UNKNOWN_BYTES: Final = 512 * KIB
"""Largest frame of a peer that has not said hello, or not logged in (Kafka: sasl.server.max.receive.size)."""

MAX_REQUEST_BYTES: Final = 100 * MIB
"""Largest request of Kafka's protocol (Kafka: socket.request.max.bytes)."""

MAX_IN_FLIGHT: Final = 64
"""Requests of one connection that may await their answer; past it the server stops reading."""

MAX_IN_FLIGHT_BYTES: Final = 64 * MIB
"""Bytes of requests in flight on one connection; at least one frame of the largest size fits."""

MAX_MESSAGE_BYTES: Final = MIB + 12
"""Default max.message.bytes: the size of one record batch as stored (Kafka: 1 MiB plus the log overhead)."""

MAX_DECOMPRESSED_BYTES: Final = 64 * MIB
"""What one record batch may decompress to. A 1 MiB batch of zeros would otherwise become 1 GiB."""

MAX_RECORDS_PER_BATCH: Final = 1_000_000
"""Default max_records_per_batch; with their headers they may be twice as many. The largest batch.num.messages of librdkafka
(its default is 10,000). Kafka has no such limit: 1 MiB of zstd holds millions of empty records, each 1 us of checking."""

MAX_HEADERS_PER_RECORD: Final = 10_000
"""Default max_headers_per_record. Kafka has no such limit: 6 KB of zstd hold one record with 33 million empty headers. Records
that are passed on after each failure collect some hundred."""

MAX_BATCHES_PER_APPEND: Final = 1_024
"""Record batches that a native request may have for one partition. They become one write, and its plan is made in one go."""

MAX_SEGMENT_BYTES: Final = INT32_MAX
"""Positions in a segment file are 32 bits wide (Kafka: FileRecords)."""

MAX_TOPIC_NAME_CHARS: Final = 249
"""A directory name is at most 255 bytes and carries `-<partition>` (Kafka: Topic)."""

MAX_PARTITIONS_PER_TOPIC: Final = 10_000
MAX_PARTITIONS: Final = 20_000
"""Default max_partitions. Each takes some 10 KB of memory, and its files. Kafka has no such limit, and 4,000 are its advice for
a broker."""
MAX_STORED_PARTITIONS: Final = 100_000
"""Of a topic that is on the disk: it may come from a Kafka, which has no limit. What is above this is a directory of somebody
else's whose name ends in a number, such as a date: each partition below it would be a row in memory and a line in the log."""
MAX_PARTITIONS_PER_REQUEST: Final = 10_000
MAX_PRODUCERS_PER_PARTITION: Final = 100_000
"""Default max_producers_per_partition: producer ids that a log remembers at a time, about 1 KB of memory each with five
batches, and 46 bytes in every snapshot. Kafka has no such limit (KIP-936 wants one per user)."""

MAX_WAITING_LOGS_BYTES: Final = 64 * MIB
"""Memory for what logs that wait for space cannot write: 0.5 % of the bytes that are scanned for them, so 13 GiB of those."""

MAX_CLIENT_ID_CHARS: Final = 255
MAX_GROUP_ID_CHARS: Final = 255
MAX_TRANSACTIONAL_ID_CHARS: Final = 255
MAX_RULE_NAME_CHARS: Final = 1024
"""A name in an ACL, in a client quota, or of a subscription to metrics: kept in memory, and written with every change."""
MAX_STRING_CHARS: Final = INT16_MAX
"""Any other text of a request, such as the note of a committed offset (Kafka: the length of a string has 16 bits)."""

MAX_APPLICATION_CHARS: Final = 255
MAX_TASK_CHARS: Final = 255
MAX_TASKS_PER_COMMIT: Final = 10_000
"""What one commit of staged records may name. The objects of a request have a limit of their own, which is reached first when
each task has many partitions."""

MAX_SPLIT_POINTS: Final = 100_000
"""In one answer; the pieces get larger where there would be more."""

MAX_LEASE_ID_CHARS: Final = 64

MAX_DESCRIBED_SEGMENTS: Final = 10_000
DEFAULT_DESCRIBED_SEGMENTS: Final = 1_000
"""In one answer; what comes behind them is asked for by its offset. 10,000 are 2 MB and take some 50 ms."""
MAX_LISTED: Final = 10_000
DEFAULT_LISTED: Final = 1_000
"""Transactional ids, producers or connections in one answer. What is left out is counted."""
MAX_DESCRIBED_GAPS: Final = 1_000
"""In the same answer; `list_gaps` has all."""
