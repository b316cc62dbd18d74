// kafkajs has gzip; the others are plugged in, as its users do.
const { CompressionCodecs, CompressionTypes } = require('kafkajs')
const lz4 = require('lz4js')
const snappy = require('snappyjs')
const { ZstdCodec } = require('zstd-codec')

const XERIAL = Buffer.from([130, 83, 78, 65, 80, 80, 89, 0])
const XERIAL_HEADER = 16

function unframed(buffer) {
  if (!buffer.subarray(0, XERIAL.length).equals(XERIAL)) return snappy.uncompress(buffer)
  const blocks = []
  for (let at = XERIAL_HEADER; at < buffer.length; ) {
    const size = buffer.readUInt32BE(at)
    blocks.push(snappy.uncompress(buffer.subarray(at + 4, at + 4 + size)))
    at += 4 + size
  }
  return Buffer.concat(blocks)
}

// lz4js calls its blocks dependent, which Kafka refuses. One block, of up to 4 MiB, depends on none: flags and their checksum.
function independent(frame) {
  frame[4] = 0x60
  frame[6] = 0x73
  return frame
}

const zstd = new Promise((resolve) => ZstdCodec.run((codec) => resolve(new codec.Simple())))

CompressionCodecs[CompressionTypes.Snappy] = () => ({
  compress: async (encoder) => snappy.compress(encoder.buffer),
  decompress: async (buffer) => unframed(buffer),
})
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => independent(Buffer.from(lz4.compress(encoder.buffer))),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from((await zstd).compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from((await zstd).decompress(buffer)),
})

module.exports = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
