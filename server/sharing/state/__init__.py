"""States of the records that members of share groups are given. No trio, no clock, no disk."""
