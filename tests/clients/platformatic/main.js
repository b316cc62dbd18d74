// Drives @platformatic/kafka for tests: a request is a line of JSON on standard input, its answer a line on standard output.
// Requests run at the same time; an answer names its request. End of input ends the process.
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { administration } from './administration.js'
import { groups } from './groups.js'
import { producing } from './producing.js'

const { version } = JSON.parse(readFileSync(new URL('node_modules/@platformatic/kafka/package.json', import.meta.url)))
const operations = { ...administration, ...groups, ...producing, version: () => version }

// How a client gets in. Files are PEM; the certificate's has the key too.
function entry({ ca, certificate, mechanism, user, password, token }) {
  const tls = ca && { ca: [readFileSync(ca)] }
  if (certificate) tls.cert = tls.key = readFileSync(certificate)
  const login = token && mechanism === 'OAUTHBEARER' ? { token } : { username: user, password }
  return { ...(tls && { tls }), ...(mechanism && { sasl: { mechanism, ...login } }) }
}

function settings({ servers, access }) {
  return {
    ...entry(access),
    clientId: 'tests',
    bootstrapBrokers: servers.split(','),
    retries: 100,
    retryDelay: 50,
    autocreateTopics: true,
  }
}

// The library packs errors of brokers into each other.
function reason(error) {
  return [error.message, ...(error.errors ?? []).map(reason), ...(error.cause ? [reason(error.cause)] : [])].join(': ')
}

async function run(line) {
  const asked = JSON.parse(line)
  let told
  try {
    const result = await operations[asked.op](asked.op === 'version' ? {} : settings(asked), asked)
    told = { id: asked.id, result: result ?? null }
  } catch (error) {
    told = { id: asked.id, error: `${error.code || error.name}: ${reason(error)}` }
  }
  process.stdout.write(`${JSON.stringify(told)}\n`)
}

createInterface({ input: process.stdin }).on('line', run).on('close', () => process.exit(0))
