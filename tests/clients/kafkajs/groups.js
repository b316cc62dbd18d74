// Members of groups, and reading of assigned partitions, which kafkajs has only as the single member of a group.
const { PartitionAssigners } = require('kafkajs')

const PATIENCE_MS = 30_000
const members = new Map()
let readers = 0

function received(partition, message) {
  const headers = []
  for (const [key, given] of Object.entries(message.headers || {})) {
    for (const value of Array.isArray(given) ? given : [given]) {
      headers.push({ key, value: value === null ? null : Buffer.from(value).toString('base64') })
    }
  }
  return {
    partition,
    offset: Number(message.offset),
    timestamp: Number(message.timestamp),
    key: message.key && message.key.toString('base64'),
    value: message.value && message.value.toString('base64'),
    headers,
  }
}

class Member {
  constructor(kafka, asked) {
    this.asked = asked
    this.records = []
    this.held = []
    this.revoked = 0
    this.next = new Map()
    this.waiting = new Set()
    this.consumer = kafka.consumer({
      groupId: asked.group,
      heartbeatInterval: 50,
      sessionTimeout: 10_000,
      rebalanceTimeout: 10_000,
      maxWaitTimeInMs: 100,
      metadataMaxAge: 300_000,
      readUncommitted: !asked.committed,
      partitionAssigners: [PartitionAssigners.roundRobin],
    })
    this.consumer.on(this.consumer.events.GROUP_JOIN, (event) => {
      this.revoked += this.held.length
      this.held = event.payload.memberAssignment[asked.topic] || []
      this.changed()
    })
    this.consumer.on(this.consumer.events.CRASH, (event) => {
      this.failure = event.payload.error
      this.changed()
    })
  }

  async start(fromBeginning = true) {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [this.asked.topic], fromBeginning })
    await this.consumer.run({
      autoCommit: false,
      partitionsConsumedConcurrently: 8,
      eachMessage: async ({ partition, message }) => {
        if (this.take && !this.take(partition, message)) return
        this.records.push(received(partition, message))
        this.next.set(partition, String(Number(message.offset) + 1))
        this.changed()
      },
    })
  }

  changed() {
    for (const look of [...this.waiting]) look()
  }

  until(reached, what) {
    return new Promise((resolve, reject) => {
      const end = (settle, value) => {
        clearTimeout(timer)
        this.waiting.delete(look)
        settle(value)
      }
      const look = () => {
        if (reached()) end(resolve)
        else if (this.failure) end(reject, this.failure)
      }
      const said = () => `${what}: not in time; ${this.held.length} partitions held, ${this.records.length} records received`
      const timer = setTimeout(() => end(reject, new Error(said())), PATIENCE_MS)
      this.waiting.add(look)
      look()
    })
  }

  async commit() {
    const offsets = [...this.next].map(([partition, offset]) => ({ topic: this.asked.topic, partition, offset }))
    await this.consumer.commitOffsets(offsets)
  }
}

async function consume(kafka, asked) {
  const member = new Member(kafka, { ...asked, group: `reader-${process.pid}-${++readers}` })
  // What was fetched from the group's own start, before the seek, is passed over.
  member.take = (partition, message) => Number(message.offset) >= (asked.offsets[partition] ?? Infinity)
  await member.start()
  try {
    for (const [partition, offset] of Object.entries(asked.offsets)) {
      member.consumer.seek({ topic: asked.topic, partition: Number(partition), offset: String(offset) })
    }
    await member.until(() => member.records.length >= asked.count, 'consume')
    return member.records
  } finally {
    await member.consumer.disconnect()
  }
}

const operations = {
  consume,
  join: async (kafka, asked) => {
    const member = new Member(kafka, asked)
    members.set(asked.name, member)
    await member.start()
  },
  assigned: async (kafka, { name, count }) => {
    const member = members.get(name)
    await member.until(() => member.held.length === count, 'assigned')
    return { partitions: member.held, revoked: member.revoked }
  },
  received: async (kafka, { name, count }) => {
    const member = members.get(name)
    await member.until(() => member.records.length >= count, 'received')
    return member.records
  },
  commit: async (kafka, { name }) => members.get(name).commit(),
  leave: async (kafka, { name }) => {
    const member = members.get(name)
    members.delete(name)
    await member.consumer.disconnect()
  },
}

module.exports = { operations, consume }
