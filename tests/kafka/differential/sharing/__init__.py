"""Scripts about share groups (KIP-932): several members, each with a connection and a share session of its own."""
