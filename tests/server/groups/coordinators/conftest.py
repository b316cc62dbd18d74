"""What tests of coordinators begin with, as those of other actors do."""

from tests.server.actors.conftest import clock as clock
from tests.server.actors.conftest import fs as fs
