"""Share groups (KIP-932): what becomes of the records that their members are given. No trio, no clock, no disk."""
