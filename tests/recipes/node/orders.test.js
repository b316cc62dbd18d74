const assert = require('node:assert/strict')
const { after, before, beforeEach, test } = require('node:test')
const { Kafka } = require('kafkajs')
const { startTriolog } = require('./triolog')

let triolog
before(async () => { triolog = await startTriolog() })
beforeEach(() => triolog.call('/reset', {}))
after(() => triolog.stop())

test('an order arrives although the leader moves', async () => {
  await triolog.call('/topics', { name: 'orders' })
  await triolog.call('/faults', { api: 'Produce', error: 'NOT_LEADER_OR_FOLLOWER', once: true })
  const kafka = new Kafka({ brokers: [triolog.kafka] })

  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic: 'orders', messages: [{ value: 'espresso' }] })
  await producer.disconnect()

  const consumer = kafka.consumer({ groupId: 'baristas' })
  await consumer.connect()
  await consumer.subscribe({ topics: ['orders'], fromBeginning: true })
  const order = await new Promise((resolve) => {
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) })
  })
  await consumer.disconnect()

  assert.equal(order, 'espresso')
  const [fault] = await triolog.call('/faults')
  assert.equal(fault.fired, 1)
})
