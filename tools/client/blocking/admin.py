"""Topics, offsets and groups for blocking programs: the functions of `Admin`, run to their end by the client's loop."""

from __future__ import annotations

from ..admin import Admin
from .client import BlockingClient
from .in_place import blocking


class BlockingAdmin:
    """Calls on topics and groups: the methods of `Admin`, which return what those return when they are awaited. Every one
    raises the first error among the answers."""

    def __init__(self, client: BlockingClient) -> None:
        self._loop = client.loop
        self._shared = Admin(client.driver)

    create_topic = blocking(Admin.create_topic)
    create_topics = blocking(Admin.create_topics)
    delete_topics = blocking(Admin.delete_topics)
    list_topics = blocking(Admin.list_topics)
    describe_topic = blocking(Admin.describe_topic)
    describe_config = blocking(Admin.describe_config)
    create_partitions = blocking(Admin.create_partitions)
    alter_config = blocking(Admin.alter_config)
    delete_records = blocking(Admin.delete_records)
    list_gaps = blocking(Admin.list_gaps)
    accept_gap = blocking(Admin.accept_gap)
    describe_segments = blocking(Admin.describe_segments)
    list_groups = blocking(Admin.list_groups)
    describe_groups = blocking(Admin.describe_groups)
    group_offsets = blocking(Admin.group_offsets)
    commit_group_offsets = blocking(Admin.commit_group_offsets)
    alter_share_group_offsets = blocking(Admin.alter_share_group_offsets)
    delete_groups = blocking(Admin.delete_groups)
    list_transactions = blocking(Admin.list_transactions)
    describe_transactions = blocking(Admin.describe_transactions)
    describe_producers = blocking(Admin.describe_producers)
    abort_transaction = blocking(Admin.abort_transaction)
    abort_hanging_transaction = blocking(Admin.abort_hanging_transaction)
    describe_quotas = blocking(Admin.describe_quotas)
    alter_quotas = blocking(Admin.alter_quotas)
    describe_users = blocking(Admin.describe_users)
    alter_users = blocking(Admin.alter_users)
    describe_acls = blocking(Admin.describe_acls)
    create_acls = blocking(Admin.create_acls)
    delete_acls = blocking(Admin.delete_acls)
    check_may_change = blocking(Admin.check_may_change)
    offsets = blocking(Admin.offsets)
    offsets_for_times = blocking(Admin.offsets_for_times)
    explain = blocking(Admin.explain)
    list_connections = blocking(Admin.list_connections)
    statistics = blocking(Admin.statistics)
    stage = blocking(Admin.stage)
    commit_stage = blocking(Admin.commit_stage)
    abort_stage = blocking(Admin.abort_stage)
    last_commit = blocking(Admin.last_commit)
    split_points = blocking(Admin.split_points)
    lease_segments = blocking(Admin.lease_segments)
