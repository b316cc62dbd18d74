// Topics, configurations, offsets and groups through the library's admin client.
import { Admin, ConfigResourceTypes, IncrementalAlterConfigOperationTypes, ListOffsetTimestamps } from '@platformatic/kafka'

function operation(work) {
  return async (settings, asked) => {
    const admin = new Admin({ ...settings, autocreateTopics: false, retries: 3 })
    try {
      return await work(admin, asked)
    } finally {
      await admin.close()
    }
  }
}

async function offset(admin, { topic, partition }, timestamp) {
  const partitions = [{ partitionIndex: partition, timestamp: BigInt(timestamp) }]
  const [found] = await admin.listOffsets({ topics: [{ name: topic, partitions }] })
  return Number(found.partitions[0].offset)
}

function listed(offsets) {
  return Object.entries(offsets).map(([partition, offset]) => ({ partition: Number(partition), offset: BigInt(offset) }))
}

const operations = {
  bounds: async (admin, asked) => [
    await offset(admin, asked, ListOffsetTimestamps.EARLIEST),
    await offset(admin, asked, ListOffsetTimestamps.LATEST),
  ],
  offset_at: async (admin, asked) => {
    const found = await offset(admin, asked, asked.timestamp)
    return found < 0 ? null : found
  },
  create_topic: async (admin, { topic, partitions, configs }) => {
    const keys = Object.entries(configs).map(([name, value]) => ({ name, value }))
    await admin.createTopics({ topics: [topic], partitions, replicas: 1, configs: keys })
  },
  delete_topic: (admin, { topic }) => admin.deleteTopics({ topics: [topic] }),
  partitions: async (admin, { topic }) => {
    if (!(await admin.listTopics()).includes(topic)) return []
    const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true })
    return [...topics.get(topic).partitions.keys()]
  },
  add_partitions: async (admin, { topic, partitions }) => {
    await admin.createPartitions({ topics: [{ name: topic, count: partitions, assignments: null }] })
  },
  describe_configs: async (admin, { topic }) => {
    const [found] = await admin.describeConfigs({ resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic }] })
    return Object.fromEntries(found.configs.map(({ name, value }) => [name, value]))
  },
  alter_configs: async (admin, { topic, configs }) => {
    const configOperation = IncrementalAlterConfigOperationTypes.SET
    const changes = Object.entries(configs).map(([name, value]) => ({ name, value, configOperation }))
    const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configs: changes }
    await admin.incrementalAlterConfigs({ resources: [resource] })
  },
  delete_records: async (admin, { topic, offsets }) => {
    await admin.deleteRecords({ topics: [{ name: topic, partitions: listed(offsets) }] })
  },
  committed: async (admin, { group, topic }) => {
    const [found] = await admin.listConsumerGroupOffsets({ groups: [group] })
    const partitions = found.topics.find(({ name }) => name === topic)?.partitions ?? []
    const known = partitions.filter(({ committedOffset }) => committedOffset >= 0n)
    return Object.fromEntries(known.map((each) => [each.partitionIndex, Number(each.committedOffset)]))
  },
  reset: async (admin, { group, topic, offsets }) => {
    await admin.alterConsumerGroupOffsets({ groupId: group, topics: [{ name: topic, partitionOffsets: listed(offsets) }] })
  },
  describe_group: async (admin, { group }) => {
    const found = (await admin.describeGroups({ groups: [group] })).get(group)
    return { state: `${found.state[0]}${found.state.slice(1).toLowerCase()}`, members: found.members.size }
  },
  delete_group: (admin, { group }) => admin.deleteGroups({ groups: [group] }),
}

export const administration = Object.fromEntries(
  Object.entries(operations).map(([name, work]) => [name, operation(work)]),
)
