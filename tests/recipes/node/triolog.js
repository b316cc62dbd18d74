const { spawn } = require('node:child_process')
const { once } = require('node:events')
const { mkdtempSync, rmSync } = require('node:fs')
const { tmpdir } = require('node:os')
const { join } = require('node:path')
const { createInterface } = require('node:readline')

// Start a server on ports that the system chooses.
async function startTriolog() {
  const folder = mkdtempSync(join(tmpdir(), 'triolog-'))
  const ports = ['--native', '127.0.0.1:0', '--kafka', '127.0.0.1:0', '--control', '127.0.0.1:0', '--ready-file', '-']
  const options = ['--data-dir', join(folder, 'data'), '--durability', 'os', '--log-level', 'error']
  const env = { ...process.env, TRIOLOG_GROUP_INITIAL_REBALANCE_DELAY_MS: '0' }
  const server = spawn('triolog', ['serve', ...ports, ...options], { env, stdio: ['ignore', 'pipe', 'inherit'] })
  const exited = once(server, 'exit')
  const stop = async () => {
    server.kill()
    await exited
    rmSync(folder, { recursive: true })
  }
  for await (const line of createInterface({ input: server.stdout })) {
    return new Triolog(JSON.parse(line), stop)
  }
  await exited
  throw new Error('triolog did not start: standard error has the reason')
}

class Triolog {
  constructor(addresses, stop) {
    this.kafka = addresses.kafka
    this.control = addresses.control
    this.stop = stop
  }

  // Call the control port: POST with a body, GET without one.
  async call(path, body) {
    const post = { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }
    const response = await fetch(`http://${this.control}${path}`, body && post)
    if (!response.ok) throw new Error(await response.text())
    return response.json()
  }
}

module.exports = { startTriolog }
