// Numbers, sizes and times as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;

/** `1,234,567`. Offsets above 2^53 come as strings. */
export function count(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "string" ? whole.format(BigInt(value)) : whole.format(value);
}

/** `0`, `0.3`, `12`, `1,234`, `56.7 k`, `1.2 M`. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e9) return `${three(value / 1e9)} G`;
  if (value >= 1e6) return `${three(value / 1e6)} M`;
  if (value >= 1e5) return `${three(value / 1e3)} k`;
  return value > 0 && value < 10 ? trimmed(value, value < 1 ? 2 : 1) : whole.format(value);
}

/** Of `plural`: `1 record`, `2 records`. */
export function counted(value, noun, plural = `${noun}s`) {
  return `${count(value)} ${Number(value) === 1 ? noun : plural}`;
}

/** `1.4 MiB`. */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let value = bytes, unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? number(value) : three(value)} ${UNITS[unit]}`;
}

export const perSecond = (bytes) => (bytes === null || bytes === undefined ? "–" : `${size(bytes)}/s`);

/** A number and its unit apart, so that they can be set apart. */
export function parts(text) {
  const at = text.indexOf(" ");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

/** `0.42 ms`, `12 ms`, `1.4 s`, `3 min`. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms === 0) return "0 ms";
  if (ms < SECOND) return `${three(ms)} ms`;
  if (ms < MINUTE) return `${three(ms / SECOND)} s`;
  return age(ms / SECOND);
}

/** `12 minutes`, `3.4 days`. */
export function age(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  for (const [least, unit] of [[365 * 86400, "year"], [86400, "day"], [3600, "hour"], [60, "minute"], [0, "second"]]) {
    if (seconds < least) continue;
    const value = seconds / (least || 1);
    const text = value < 10 && least ? trimmed(value, 1) : whole.format(value);
    return `${text} ${unit}${text === "1" ? "" : "s"}`;
  }
  return "–";
}

function three(value) {
  return value >= 100 ? whole.format(value) : trimmed(value, value >= 10 ? 1 : 2);
}

function trimmed(value, digits) {
  return String(Number(value.toFixed(digits)));
}

// ---- times -----------------------------------------------------------------------------------------------------------------

let zone; // undefined: of the browser

/** "UTC" or "local". */
export function setZone(name) {
  zone = name === "UTC" ? "UTC" : undefined;
  formats.clear();
}
export const zoneName = () => (zone === "UTC" ? "UTC" : "local");

const formats = new Map();

function format(options) {
  const key = JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.DateTimeFormat("en-GB", { timeZone: zone, ...options }));
  return formats.get(key);
}

const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
const DATE = { day: "numeric", month: "short", year: "numeric" };
const isTime = (ms) => ms !== null && ms !== undefined && Number(ms) >= 0 && Number(ms) < 8.64e15;

/** `14:03:22`. */
export const clock = (ms) => (isTime(ms) ? format(CLOCK).format(Number(ms)) : "–");

/** `4 Jul 2013, 14:03:22`; `–` where there is none. */
export const time = (ms) => (isTime(ms) ? format({ ...DATE, ...CLOCK }).format(Number(ms)) : "–");

/** `4 Jul 2013, 14:03:22.123`: of a record. */
export const exactTime = (ms) => (isTime(ms) ? format({ ...DATE, ...CLOCK, fractionalSecondDigits: 3 }).format(Number(ms)) : "no time");

/** A time for an `<input type=datetime-local>`, and back. */
export const timeInput = (ms) => new Date(Number(ms) + offsetOf(Number(ms))).toISOString().slice(0, 23);
export const timeOfInput = (text) => new Date(zone === "UTC" ? `${text}Z` : text).getTime();

/** `4 Jul 2013 14:03 → 5 Jul 2013 08:00`, without what is said twice. */
export function range(from, to) {
  if (!isTime(from) || !isTime(to)) return isTime(to) ? time(to) : "no time";
  const short = { hour: "2-digit", minute: "2-digit", ...(to - from < HOUR ? { second: "2-digit" } : {}) };
  const sameDay = format(DATE).format(from) === format(DATE).format(to);
  const left = format({ ...DATE, ...short }).format(from);
  return `${left} → ${format(sameDay ? short : { ...DATE, ...short }).format(to)}`;
}

const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE,
  10 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY,
];

/** Moments for an axis, with texts: `[{at, text}]`, at most `most` of them. */
export function timeTicks(from, to, most) {
  const span = Math.max(1, to - from);
  const step = STEPS.find((each) => span / each <= most);
  if (step === undefined) return monthTicks(from, to, most);
  const options = step >= DAY ? { day: "numeric", month: "short" }
    : step >= MINUTE ? { hour: "2-digit", minute: "2-digit" } : step >= SECOND ? CLOCK : { ...CLOCK, fractionalSecondDigits: 3 };
  const shift = step >= HOUR ? offsetOf(from) : 0;
  const ticks = [];
  for (let at = Math.ceil((from + shift) / step) * step - shift; at <= to; at += step) {
    const isMidnight = step < DAY && span > DAY && (at + offsetOf(at)) % DAY === 0;
    ticks.push({ at, text: format(isMidnight ? { day: "numeric", month: "short" } : options).format(at) });
  }
  return ticks;
}

function monthTicks(from, to, most) {
  const months = (to - from) / (30 * DAY);
  const step = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200].find((each) => months / each <= most) ?? 12000;
  const first = new Date(from);
  const ticks = [];
  for (let month = Math.ceil((first.getUTCFullYear() * 12 + first.getUTCMonth()) / step) * step; ; month += step) {
    const at = Date.UTC(Math.floor(month / 12), month % 12) - offsetOf(from);
    if (at > to || ticks.length > 2 * most) return ticks;
    if (at < from) continue;
    ticks.push({ at, text: format(step >= 12 ? { year: "numeric" } : { month: "short", year: "numeric" }).format(at) });
  }
}

function offsetOf(ms) {
  return zone === "UTC" ? 0 : -new Date(ms).getTimezoneOffset() * MINUTE;
}

/** Round numbers for an axis from 0: the end, not below `value`, that has a short text. */
export function niceEnd(value, base = 10) {
  if (!(value > 0)) return 1;
  const power = base ** Math.floor(Math.log(value) / Math.log(base));
  const steps = base === 1024 ? [1, 2, 4, 8, 10, 20, 40, 80, 100, 200, 400, 800, 1024] : [1, 2, 4, 6, 8, 10];
  return power * steps.find((step) => step * power >= value * 0.999);
}
