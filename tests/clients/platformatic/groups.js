// Members of groups, and reading of partitions from given offsets, which the library has only as a member of a group.
import { Consumer, FetchIsolationLevels } from '@platformatic/kafka'

const PATIENCE_MS = 30_000
const members = new Map()
let readers = 0

function received(message) {
  return {
    partition: message.partition,
    offset: Number(message.offset),
    timestamp: Number(message.timestamp),
    key: message.key?.toString('base64') ?? null,
    value: message.value?.toString('base64') ?? null,
    headers: [...message.headers].map(([key, value]) => ({ key: key.toString(), value: value?.toString('base64') ?? null })),
  }
}

class Member {
  constructor(settings, { group, topic, instance, assignor, committed }) {
    this.topic = topic
    this.messages = []
    this.held = []
    this.revoked = 0
    this.next = new Map()
    this.waiting = new Set()
    const byServer = { groupProtocol: 'consumer' }
    const byClients = { heartbeatInterval: 50, sessionTimeout: 10_000, rebalanceTimeout: 10_000 }
    this.consumer = new Consumer({
      ...settings,
      ...(assignor === 'server' ? byServer : byClients),
      ...(instance && { groupInstanceId: instance }),
      groupId: group,
      autocommit: false,
      maxWaitTime: 100,
      isolationLevel: committed ? FetchIsolationLevels.READ_COMMITTED : FetchIsolationLevels.READ_UNCOMMITTED,
    })
    // A rebalance of clients takes all partitions; one of the server takes what it moves.
    this.consumer.on('consumer:group:join', () => assignor === 'server' || this.hold([]))
    this.consumer.on('consumer:heartbeat:end', () => this.hold(this.assigned()))
  }

  assigned() {
    return this.consumer.assignments?.find((each) => each.topic === this.topic)?.partitions ?? []
  }

  hold(partitions) {
    this.revoked += this.held.filter((each) => !partitions.includes(each)).length
    this.held = partitions
    this.changed()
  }

  async start(options) {
    this.stream = await this.consumer.consume({ topics: [this.topic], ...options })
    this.stream.on('error', (error) => {
      this.failure = error
      this.changed()
    })
    this.stream.on('data', (message) => {
      this.messages.push(message)
      this.next.set(message.partition, message.offset + 1n)
      this.changed()
    })
  }

  changed() {
    for (const look of [...this.waiting]) look()
  }

  until(reached) {
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
      const said = () => `not in time: ${this.held.length} partitions held, ${this.messages.length} records received`
      const timer = setTimeout(() => end(reject, new Error(said())), PATIENCE_MS)
      this.waiting.add(look)
      look()
    })
  }

  commit() {
    const offsets = [...this.next].map(([partition, offset]) => ({ topic: this.topic, partition, offset, leaderEpoch: 0 }))
    return this.consumer.commit({ offsets })
  }

  async leave() {
    await this.stream?.close()
    await this.consumer.close(true)
  }
}

// Reads records from given offsets as the one member of a group, and passes them to `use` before the member leaves.
export async function consumed(settings, asked, use) {
  const member = new Member(settings, asked)
  const offsets = Object.entries(asked.offsets).map(([partition, offset]) => {
    return { topic: asked.topic, partition: Number(partition), offset: BigInt(offset) }
  })
  await member.start({ mode: 'manual', offsets })
  try {
    const wanted = () => member.messages.filter(({ partition }) => String(partition) in asked.offsets)
    await member.until(() => wanted().length >= asked.count)
    const messages = wanted()
    return await use(messages, messages.map(received), member.consumer)
  } finally {
    await member.leave()
  }
}

export const groups = {
  consume: (settings, asked) => {
    const group = `reader-${process.pid}-${++readers}`
    return consumed(settings, { ...asked, group }, async (_, records) => records)
  },
  join: async (settings, asked) => {
    const member = new Member(settings, asked)
    members.set(asked.name, member)
    await member.start({ mode: 'committed', fallbackMode: 'earliest' })
  },
  assigned: async (_, { name, count }) => {
    const member = members.get(name)
    await member.until(() => member.held.length === count)
    return { partitions: member.held, revoked: member.revoked }
  },
  received: async (_, { name, count }) => {
    const member = members.get(name)
    await member.until(() => member.messages.length >= count)
    return member.messages.map(received)
  },
  commit: (_, { name }) => members.get(name).commit(),
  leave: async (_, { name }) => {
    const member = members.get(name)
    members.delete(name)
    await member.leave()
  },
}
