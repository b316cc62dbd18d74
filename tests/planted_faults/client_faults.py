"""Faults in the client and in ingest: Ctrl-C, cancellation under asyncio, checksums in Python, an early acknowledgement."""

from __future__ import annotations

from typing import Final

from tests.planted_faults.planting import Fault

BLOCKING: Final = "tests/tools/client/blocking"
ASYNCIO: Final = "tests/tools/client/test_asyncio.py"
LOOPS: Final = "tests/tools/client/test_loops.py"
CHECKSUM: Final = "tests/protocol/records/test_batch.py"
INGEST: Final = "tests/tools/ingest/test_link.py"

CLIENT_FAULTS: Final = {
    "ctrl-c-interrupts-a-task": Fault(
        why="A consumer that is interrupted between a response and its queue has moved on: its program never gets the records.",
        file="tools/client/blocking/loop.py",
        old="        signal.signal(signal.SIGINT, self._on_interrupt)\n",
        new="        pass\n",
        tests=(f"{BLOCKING}/test_loop.py::test_ctrl_c_waits_while_a_task_of_a_producer_computes",),
    ),
    "interrupted-request-is-forgotten": Fault(
        why="A batch whose request was interrupted counts as in flight, and nothing of its partition is sent again.",
        file="tools/client/producer.py",
        old='            self._fail(deliveries, ConnectionLostError("interrupted while sending"))\n',
        new="            pass\n",
        tests=(f"{BLOCKING}/test_blocking.py::test_an_interrupted_send_loses_nothing",),
    ),
    "asyncio-cancellation-is-caught": Fault(
        why="A program's timeout is lost if a deadline of the client passes at the same time.",
        file="tools/client/asyncio_tasks.py",
        old="            is_last = task.uncancel() <= self._cancelling\n",
        new="            is_last = task.uncancel() >= 0\n",
        tests=(f"{ASYNCIO}::test_asyncios_own_cancellation_is_not_caught",),
    ),
    "asyncio-task-outlives-its-nursery": Fault(
        why="A connection that opens while its client closes is never closed, and the program does not end.",
        file="tools/client/asyncio_tasks.py",
        old="        if self._scope._is_cancelled:\n            scope.cancel()\n",
        tests=(f"{LOOPS}::test_a_task_that_starts_while_its_nursery_ends_is_cancelled[in_asyncio]",),
    ),
    "checksum-in-python-begins-anew": Fault(
        why="Without the compiled package, the checksum of a file that is read in pieces covers its last piece only.",
        file="protocol/records/pure_checksum.py",
        old='int.from_bytes(piece, "little") ^ state,',
        new='int.from_bytes(piece, "little") ^ 0xFFFFFFFF,',
        tests=(f"{CHECKSUM}::test_both_agree_on_long_runs_of_a_byte",),
    ),
    "ingest-acknowledges-before-the-append": Fault(
        why="A message that the broker has forgotten is lost when the append fails.",
        file="tools/ingest/ingest.py",
        old="                        self._store(store, kept, released)\n",
        new="                        broker.acknowledge(kept, released)\n"
        "                        self._store(store, kept, released)\n",
        tests=(f"{INGEST}::test_nothing_is_acknowledged_while_the_server_is_away",),
    ),
    "ingest-forgets-stored-packet-ids": Fault(
        why="A message of QoS 2 that is sent again is stored twice.",
        file="tools/ingest/packet_ids.py",
        old="            if known == digest and message.dup:\n",
        new="            if False:\n",
        tests=(f"{INGEST}::test_a_message_of_qos_2_is_stored_once_whatever_breaks_in_its_handshake",),
    ),
    "ingest-takes-a-reused-packet-id-for-a-duplicate": Fault(
        why="A new message with the packet id of an unfinished one is acknowledged and not stored.",
        file="tools/ingest/packet_ids.py",
        old="            if known == digest and message.dup:\n",
        new="            if known is not None:\n",
        tests=(f"{INGEST}::test_a_reused_packet_id_of_qos_2_loses_no_message",),
    ),
}
