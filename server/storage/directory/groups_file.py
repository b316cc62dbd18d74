"""`groups.json`: what groups were configured with, by group."""

from __future__ import annotations

from typing import Final

from .overrides_file import Overrides, OverridesFile

GROUPS: Final = OverridesFile("groups.json", "groups", "groups are configured as the server is")

GROUPS_FILE: Final = GROUPS.name
GroupsState = Overrides
encode_groups, decode_groups, read_groups, write_groups = GROUPS.encode, GROUPS.decode, GROUPS.read, GROUPS.write
