// Drives kafkajs for tests: a request is a line of JSON on standard input, its answer a line on standard output. Requests run
// at the same time; an answer names its request. End of input ends the process.
const fs = require('node:fs')
const readline = require('node:readline')
const { version } = require('kafkajs/package.json')
const { Kafka, Partitioners, logLevel } = require('kafkajs')
const administration = require('./administration')
const codecs = require('./codecs')
const groups = require('./groups')

const producers = new Map()
const transactions = new Map()
const ACKS = { 0: 0, 1: 1, all: -1 }

function bytes(text) {
  return text === null || text === undefined ? null : Buffer.from(text, 'base64')
}

function message(given) {
  const headers = {}
  for (const { key, value } of given.headers) (headers[key] ??= []).push(bytes(value))
  const sent = { partition: given.partition, key: bytes(given.key), value: bytes(given.value), headers }
  return given.timestamp < 0 ? sent : { ...sent, timestamp: String(given.timestamp) }
}

async function send(sender, asked, settings) {
  if (settings.alone && asked.records.length > 1) {
    const offsets = []
    for (const record of asked.records) offsets.push(...(await send(sender, { ...asked, records: [record] }, settings)))
    return offsets
  }
  const messages = asked.records.map(message)
  const answers = await sender.send({ topic: asked.topic, messages, acks: settings.acks, compression: settings.compression })
  const next = new Map(answers.map((each) => [each.partition, Number(each.baseOffset)]))
  return asked.records.map(({ partition }) => {
    if (settings.acks === 0) return -1
    const offset = next.get(partition)
    next.set(partition, offset + 1)
    return offset
  })
}

async function open(kafka, asked) {
  const producer = kafka.producer({
    createPartitioner: Partitioners.DefaultPartitioner,
    idempotent: asked.idempotent || Boolean(asked.transactional_id),
    transactionalId: asked.transactional_id || undefined,
    maxInFlightRequests: 1,
  })
  await producer.connect()
  // kafkajs makes one batch of what is sent at once, however large: big messages go alone.
  const alone = asked.max_bytes > 0
  const settings = { acks: asked.transactional_id ? -1 : ACKS[asked.acks], compression: codecs[asked.codec], alone }
  producers.set(asked.name, { producer, settings })
}

async function transform(kafka, asked) {
  const records = await groups.consume(kafka, { ...asked, committed: true })
  const producer = kafka.producer({
    createPartitioner: Partitioners.DefaultPartitioner,
    idempotent: true,
    transactionalId: asked.transactional_id,
    maxInFlightRequests: 1,
  })
  await producer.connect()
  try {
    const transaction = await producer.transaction()
    await send(transaction, { topic: asked.target, records }, { acks: -1, compression: codecs.none })
    const offset = String(records.at(-1).offset + 1)
    const topics = [{ topic: asked.topic, partitions: [{ partition: 0, offset }] }]
    await transaction.sendOffsets({ consumerGroupId: asked.group, topics })
    await (asked.committed ? transaction.commit() : transaction.abort())
    return records
  } finally {
    await producer.disconnect()
  }
}

const operations = {
  ...groups.operations,
  ...administration.operations,
  open,
  transform,
  send: (kafka, asked) => {
    const { producer, settings } = producers.get(asked.name)
    return send(transactions.get(asked.name) || producer, asked, settings)
  },
  begin: async (kafka, { name }) => {
    transactions.set(name, await producers.get(name).producer.transaction())
  },
  end: async (kafka, { name, committed }) => {
    const transaction = transactions.get(name)
    transactions.delete(name)
    await (committed ? transaction.commit() : transaction.abort())
  },
  close: async (kafka, { name }) => {
    const { producer } = producers.get(name)
    producers.delete(name)
    await producer.disconnect()
  },
}

// How a client gets in. Files are PEM; the certificate's has the key too.
function entry({ ca, certificate, mechanism, user, password, token }) {
  const ssl = ca && { ca: [fs.readFileSync(ca)] }
  if (certificate) ssl.cert = ssl.key = fs.readFileSync(certificate)
  const oauthBearerProvider = async () => ({ value: token })
  const sasl = mechanism && { mechanism: mechanism.toLowerCase(), username: user, password, oauthBearerProvider }
  return { ...(ssl && { ssl }), ...(sasl && { sasl }) }
}

function kafkaAt({ servers, access }) {
  return new Kafka({
    ...entry(access),
    brokers: servers.split(','),
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 20, maxRetryTime: 200, retries: 100 },
  })
}

async function run(line) {
  const asked = JSON.parse(line)
  let told
  try {
    const result = asked.op === 'version' ? version : await operations[asked.op](kafkaAt(asked), asked)
    told = { id: asked.id, result: result ?? null }
  } catch (error) {
    told = { id: asked.id, error: `${error.type || error.name}: ${error.message}` }
  }
  process.stdout.write(`${JSON.stringify(told)}\n`)
}

readline.createInterface({ input: process.stdin }).on('line', run).on('close', () => process.exit(0))
