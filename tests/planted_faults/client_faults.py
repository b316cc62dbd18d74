"""Faults in the client: what Ctrl-C in a blocking program may cost."""

from __future__ import annotations

from typing import Final

from tests.planted_faults.planting import Fault

BLOCKING: Final = "tests/tools/client/blocking"

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
}
