// Producers by name, and transactions.
import { Producer } from '@platformatic/kafka'
import { consumed } from './groups.js'

const producers = new Map()
const ACKS = { 0: 0, 1: 1, all: -1 }
// The library's default is producer id 0, and brokers refuse that for a transactional id of an earlier producer.
const NO_PRODUCER = { producerId: -1n, producerEpoch: -1 }

function bytes(text) {
  return text === null || text === undefined ? null : Buffer.from(text, 'base64')
}

function message(topic, given) {
  const headers = new Map(given.headers.map(({ key, value }) => [Buffer.from(key), bytes(value)]))
  const sent = { topic, partition: given.partition, key: bytes(given.key), value: bytes(given.value), headers }
  return given.timestamp < 0 ? sent : { ...sent, timestamp: BigInt(given.timestamp) }
}

// Sends with a producer or in a transaction. A call makes one batch for each partition: big messages go alone.
async function send({ sender, alone, acks }, topic, records) {
  if (alone && records.length > 1) {
    const offsets = []
    for (const record of records) offsets.push(...(await send({ sender, alone, acks }, topic, [record])))
    return offsets
  }
  const { offsets } = await sender.send({ messages: records.map((each) => message(topic, each)) })
  const next = new Map((offsets ?? []).map(({ partition, offset }) => [partition, Number(offset)]))
  return records.map(({ partition }) => {
    if (acks === 0) return -1
    const offset = next.get(partition)
    next.set(partition, offset + 1)
    return offset
  })
}

function opened(settings, { acks, codec, idempotent, transactional_id: transactionalId }) {
  return new Producer({
    ...settings,
    acks: ACKS[acks],
    compression: codec,
    idempotent: idempotent || Boolean(transactionalId),
    ...(transactionalId && { transactionalId }),
  })
}

export const producing = {
  open: async (settings, asked) => {
    const producer = opened(settings, asked)
    producers.set(asked.name, { producer, sender: producer, alone: asked.max_bytes > 0, acks: ACKS[asked.acks] })
  },
  send: (_, { name, topic, records }) => send(producers.get(name), topic, records),
  begin: async (_, { name }) => {
    const opened = producers.get(name)
    opened.sender = await opened.producer.beginTransaction(NO_PRODUCER)
  },
  end: (_, { name, committed }) => {
    const { sender } = producers.get(name)
    return committed ? sender.commit() : sender.abort()
  },
  close: async (_, { name }) => {
    const { producer } = producers.get(name)
    producers.delete(name)
    await producer.close()
  },
  transform: async (settings, asked) => {
    const producer = opened(settings, { ...asked, acks: 'all', codec: 'none' })
    try {
      await consumed(settings, { ...asked, committed: true }, async (messages, records, consumer) => {
        const transaction = await producer.beginTransaction(NO_PRODUCER)
        await send({ sender: transaction }, asked.target, records)
        await transaction.addConsumer(consumer)
        await transaction.addOffset(messages.at(-1))
        await (asked.committed ? transaction.commit() : transaction.abort())
      })
    } finally {
      await producer.close()
    }
  },
}
