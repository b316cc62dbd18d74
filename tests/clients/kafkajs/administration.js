// Topics, configurations, offsets and groups through kafkajs's admin client.
const { ConfigResourceTypes } = require('kafkajs')

function operation(work) {
  return async (kafka, asked) => {
    const admin = kafka.admin()
    await admin.connect()
    try {
      return await work(admin, asked)
    } finally {
      await admin.disconnect()
    }
  }
}

function pairs(configs) {
  return Object.entries(configs).map(([name, value]) => ({ name, value }))
}

function listed(offsets) {
  return Object.entries(offsets).map(([partition, offset]) => ({ partition: Number(partition), offset: String(offset) }))
}

async function bounds(admin, { topic, partition }) {
  const found = (await admin.fetchTopicOffsets(topic)).find((each) => each.partition === partition)
  return [Number(found.low), Number(found.high)]
}

const operations = {
  bounds,
  create_topic: async (admin, { topic, partitions, configs }) => {
    const made = await admin.createTopics({ topics: [{ topic, numPartitions: partitions, configEntries: pairs(configs) }] })
    if (!made) throw new Error('the topic exists') // kafkajs does not throw this one
  },
  delete_topic: (admin, { topic }) => admin.deleteTopics({ topics: [topic] }),
  partitions: async (admin, { topic }) => {
    if (!(await admin.listTopics()).includes(topic)) return []
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return topics[0].partitions.map((each) => each.partitionId)
  },
  add_partitions: async (admin, { topic, partitions }) => {
    await admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] })
  },
  describe_configs: async (admin, { topic }) => {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }]
    const { resources: found } = await admin.describeConfigs({ resources, includeSynonyms: false })
    return Object.fromEntries(found[0].configEntries.map((each) => [each.configName, each.configValue]))
  },
  alter_configs: async (admin, { topic, configs }) => {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: pairs(configs) }]
    await admin.alterConfigs({ validateOnly: false, resources })
  },
  delete_records: async (admin, { topic, offsets }) => {
    await admin.fetchTopicOffsets(topic) // deleteTopicRecords takes it that the topic is known
    await admin.deleteTopicRecords({ topic, partitions: listed(offsets) })
  },
  offset_at: async (admin, asked) => {
    const found = await admin.fetchTopicOffsetsByTimestamp(asked.topic, asked.timestamp)
    const offset = Number(found.find((each) => each.partition === asked.partition).offset)
    // It answers the end of the log where there is no such record.
    return offset === (await bounds(admin, asked))[1] ? null : offset
  },
  committed: async (admin, { group, topic }) => {
    const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    const known = found.partitions.filter((each) => Number(each.offset) >= 0)
    return Object.fromEntries(known.map((each) => [each.partition, Number(each.offset)]))
  },
  reset: (admin, { group, topic, offsets }) => admin.setOffsets({ groupId: group, topic, partitions: listed(offsets) }),
  describe_group: async (admin, { group }) => {
    const { groups } = await admin.describeGroups([group])
    return { state: groups[0].state, members: groups[0].members.length }
  },
  delete_group: (admin, { group }) => admin.deleteGroups([group]),
}

module.exports = { operations: Object.fromEntries(Object.entries(operations).map(([name, work]) => [name, operation(work)])) }
