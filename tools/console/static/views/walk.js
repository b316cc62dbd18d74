// The time walk: a handle is dragged along the time axis of one partition, and the way that the server takes to that time is drawn:
// which segment, which slots of its two indexes, which bytes were read. Of the questions only the latest is on its way.

import { get } from "../api.js";
import { onWidth } from "../charts.js";
import { choose, fill, h, mark, put, s, visible } from "../dom.js";
import { count, counted, duration, exactTime, size, timeInput, timeOfInput, timeTicks } from "../format.js";
import { topicHead } from "../topic_head.js";

const LOG = { top: 40, height: 74, axis: 22 };
const STRIP = { height: 26, gap: 62, top: 34 };
// Without a move; then the record itself is asked for.
const REST_MS = 150;

export function mount(root, context, data) {
  const topic = encodeURIComponent(data.topic), api = `/topics/${topic}`;
  const segments = data.segments.map((each) => ({ ...each, least: Number(each.least_timestamp), max: Number(each.max_timestamp) }));
  const isTimed = Number(data.last) >= 0;
  const low = Number(data.first), high = Math.max(Number(data.last), low + 1), span = high - low;
  let told = data, at = Number(data.at ?? low), width = 0, wanted = null, isAsking = false, rest = 0;

  const when = h("input", { type: "datetime-local", step: "0.001", "aria-label": "Time", onchange: () => when.value && move(timeOfInput(when.value)) });
  const partition = data.partitions > 1 && choose("Partition", Array.from({ length: data.partitions }, (_, i) => [i, `partition ${i}`]), data.partition,
    (value) => context.navigate(`${api}/walk?partition=${value}&at=${Math.round(at)}`));
  const facts = h("p", { class: "soft" }, `${counted(data.walk.segment_count, "segment")}, offsets ${count(data.walk.log_start_offset)} – ${count(data.walk.high_watermark)}`);
  const log = s("svg", { height: LOG.top + LOG.height + LOG.axis, class: "walk-log", tabindex: 0, role: "slider", "aria-label": "Time to look up", "aria-valuemin": low, "aria-valuemax": high });
  const way = s("svg", { height: STRIP.top + 2 * STRIP.gap + STRIP.height + 2, class: "walk-way", "aria-hidden": "true" });
  const answer = h("p", { class: "answer", "aria-live": "polite" }), steps = h("ol", { class: "steps" }), record = h("div", { class: "found" });
  const holder = h("div", { class: "walk" }, log, way);
  root.append(topicHead(data.topic, "/walk", facts, h("div", { class: "actions" }, partition, when)),
    isTimed ? h("section", { class: "panel", "aria-label": "The walk" }, h("p", { class: "soft hint" }, "Drag the handle, or use the arrow keys."), holder)
      : h("p", { class: "empty" }, "No record of this partition has a time yet."),
    h("div", { class: "columns even" }, h("section", { class: "panel grow", "aria-label": "Step by step" }, h("h2", {}, "Step by step"), steps),
      h("section", { class: "panel grow", "aria-label": "Answer" }, h("h2", {}, "Answer"), answer, record)));

  const x = (time) => 1 + ((width - 2) * (time - low)) / span;
  const largest = Math.max(1, ...segments.map((each) => each.size_bytes));
  const fixed = s("g"), handle = s("g", { class: "handle" }), chosenMarks = s("g");
  log.append(fixed, chosenMarks, handle);

  // ---- moving ------------------------------------------------------------------------------------------------------------------
  function move(time) {
    at = Math.round(Math.max(0, time));
    drawHandle();
    when.value = timeInput(at);
    ask();
  }

  async function ask() {
    wanted = at;
    if (isAsking) return;
    isAsking = true;
    try {
      while (wanted !== null) {
        const now = wanted;
        wanted = null;
        told = await get(`${api}/walk?partition=${data.partition}&at=${now}&segments=0`, { signal: context.signal });
        drawWay();
      }
    } catch (error) {
      if (error.name !== "AbortError") put(answer, error.message);
    } finally {
      isAsking = false;
    }
    history.replaceState(history.state, "", `${api}/walk?partition=${data.partition}&at=${at}`);
    clearTimeout(rest);
    rest = setTimeout(showRecord, REST_MS);
  }

  const timeOf = (event) => low + (span * (event.clientX - log.getBoundingClientRect().left - 1)) / Math.max(1, width - 2);
  log.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    log.setPointerCapture(event.pointerId);
    log.classList.add("dragged");
    move(Math.min(high, Math.max(low, timeOf(event))));
  });
  log.addEventListener("pointermove", (event) => {
    if (log.hasPointerCapture(event.pointerId)) move(Math.min(high, Math.max(low, timeOf(event))));
  });
  for (const name of ["pointerup", "pointercancel"]) log.addEventListener(name, () => log.classList.remove("dragged"));
  log.addEventListener("keydown", (event) => {
    const step = span / (event.shiftKey ? 2000 : 200);
    const next = { ArrowLeft: at - step, ArrowRight: at + step, ArrowDown: at - step, ArrowUp: at + step, PageDown: at - span / 20, PageUp: at + span / 20, Home: low, End: high }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    move(Math.min(high, Math.max(low, next)));
  });

  // ---- the log -----------------------------------------------------------------------------------------------------------------
  function drawLog() {
    for (const svg of [log, way]) mark(svg, "width", width);
    const floor = LOG.top + LOG.height;
    const bars = segments.filter((each) => each.max >= 0).map((each, i, all) => {
      const from = each.least >= 0 ? each.least : Math.min(each.max, Math.max(low, all[i - 1]?.max ?? low));
      const left = x(from), wide = Math.max(1.5, x(each.max) - left - 1), tall = 6 + (LOG.height - 12) * Math.sqrt(each.size_bytes / largest / each.segments);
      Object.assign(each, { left, wide });
      return s("rect", { class: `segment${each.least < 0 ? " guessed" : ""}`, x: left.toFixed(1), width: wide.toFixed(1), y: (floor - tall).toFixed(1), height: tall.toFixed(1), rx: wide > 6 ? 2 : 0 });
    });
    const ticks = timeTicks(low, high, Math.max(2, Math.floor(width / 95))).flatMap(({ at: time, text }) => [
      s("line", { class: "tick", x1: x(time), x2: x(time), y1: floor, y2: floor + 5 }),
      s("text", { x: x(time), y: floor + 18, "text-anchor": x(time) < 30 ? "start" : x(time) > width - 30 ? "end" : "middle" }, text)]);
    fixed.replaceChildren(s("line", { class: "floor", x1: 0, x2: width, y1: floor, y2: floor }), ...bars, ...ticks);
  }

  function drawHandle() {
    const place = Math.min(width - 1, Math.max(1, x(at))), said = exactTime(at), isLeft = place < width / 2;
    handle.replaceChildren(s("line", { x1: place, x2: place, y1: 12, y2: LOG.top + LOG.height }), s("circle", { cx: place, cy: 12, r: 7 }),
      s("text", { x: place + (isLeft ? 13 : -13), y: 16, "text-anchor": isLeft ? "start" : "end" }, said));
    mark(log, "aria-valuenow", at);
    mark(log, "aria-valuetext", said);
  }

  // ---- the way -----------------------------------------------------------------------------------------------------------------
  const stepOf = () => told.walk.segments.at(-1);

  function drawWay() {
    if (!width) return;
    const step = stepOf();
    const found = step && (segments.findLast((each) => Number(each.segment) <= Number(step.segment)) ?? null);
    chosenMarks.replaceChildren(...(found?.left !== undefined ? [s("rect", { class: "chosen", x: found.left - 1, y: LOG.top - 4, width: found.wide + 2, height: LOG.height + 4, rx: 3 })] : []));
    tellSteps(step);
    if (!step) return way.replaceChildren();
    const parts = [];
    let from = { x: found?.left !== undefined ? found.left + found.wide / 2 : width / 2, y: -LOG.axis };
    const strip = (name, at, facts, inside, target) => {
      const y = STRIP.top + at * STRIP.gap;
      parts.push(s("text", { x: 0, y: y - 7 }, name), s("text", { x: width, y: y - 7, "text-anchor": "end", class: "said" }, facts), s("rect", { class: "strip", x: 0.5, y, width: width - 1, height: STRIP.height, rx: 4 }), ...inside(y));
      if (target !== null) {
        parts.unshift(s("path", { class: "joint", d: `M${from.x.toFixed(1)} ${from.y}C${from.x.toFixed(1)} ${y - 18} ${target.toFixed(1)} ${y - 24} ${target.toFixed(1)} ${y}` }));
        from = { x: target, y: y + STRIP.height };
      }
    };
    const index = (name, at, told, text) => {
      const place = told.slot < 0 ? 2 : Math.min(width - 3, ((told.slot + 0.5) / Math.max(1, told.entries)) * width), wide = told.slot < 0 ? 3 : Math.max(3, Math.min(40, width / told.entries - 1));
      strip(name, at, text, (y) => [s("rect", { class: `slot${told.slot < 0 ? " none" : ""}`, x: place - wide / 2, y: y + 3, width: wide, height: STRIP.height - 6, rx: 1.5 })], place);
    };
    const { time_index: byTime, offset_index: byOffset } = step;
    if (byTime) index("Time index", 0, byTime, byTime.slot < 0 ? none(byTime) : `slot ${count(byTime.slot)} of ${count(byTime.entries)}: offset ${count(byTime.offset)}`);
    if (byOffset) index("Offset index", 1, byOffset, byOffset.slot < 0 ? none(byOffset) : `slot ${count(byOffset.slot)} of ${count(byOffset.entries)}: position ${count(byOffset.position)}`);
    const place = (position) => (Number(position) / Math.max(1, step.size_bytes)) * (width - 2) + 1;
    strip(`Log ${name(step.segment)}`, 2, `${size(step.bytes_scanned)} of ${size(step.size_bytes)} read`, (y) => step.reads.map((read) =>
      s("rect", { class: `read${read.cached ? "" : " cold"}`, x: place(read.position), y: y + 3, width: Math.max(2.5, Math.min(width - 1, place(Number(read.position) + read.bytes)) - place(read.position)), height: STRIP.height - 6, rx: 1.5 })),
      step.reads.length ? place(Math.min(step.size_bytes, step.reads.at(-1).position)) : null);
    way.replaceChildren(...parts);
  }

  const none = ({ entries }) => (entries ? `before the first of ${counted(entries, "entry", "entries")}` : "empty");
  const name = (base) => `${String(base).padStart(20, "0")}.log`;

  function tellSteps(step) {
    const { walk } = told, found = walk.answer, isFound = Number(found.offset) >= 0;
    const lines = [];
    if (step) {
      lines.push(`Segment ${count(step.number + 1)} of ${count(walk.segment_count)}${told.at === null ? " holds the offset" : `: the first whose largest time, ${exactTime(step.max_timestamp)}, reaches it`}.`);
      const { time_index: byTime, offset_index: byOffset } = step;
      if (byTime) lines.push(byTime.slot < 0 ? `Time index: ${byTime.entries ? `none of its ${counted(byTime.entries, "entry", "entries")} is before it` : "it is empty"}, so the search begins at offset ${count(byTime.offset)}.`
        : `Time index: slot ${count(byTime.slot)} of ${count(byTime.entries)} is the last before it, ${exactTime(byTime.timestamp)}, offset ${count(byTime.offset)}.`);
      if (byOffset) lines.push(byOffset.slot < 0 ? `Offset index: no entry is at or before offset ${count(byOffset.looked_up)}, so the search begins at position 0.`
        : `Offset index: slot ${count(byOffset.slot)} of ${count(byOffset.entries)} leads to position ${count(byOffset.position)}.`);
      lines.push(`Log: ${size(step.bytes_scanned)} in ${counted(step.reads.length, "read")}, ${step.reads.every((read) => read.cached) ? "all of it cached" : "not all of it cached"}.`);
      if (walk.segments.length > 1) lines.unshift(`${counted(walk.segments.length - 1, "segment")} before had none at or behind it.`);
    } else lines.push("No segment reaches it: no record is as late.");
    while (steps.children.length > lines.length) steps.lastChild.remove();
    lines.forEach((line, i) => put(steps.children[i] ?? steps.appendChild(h("li")), line));
    put(answer, isFound ? `Offset ${count(found.offset)}${found.timestamp >= 0 ? `, ${exactTime(found.timestamp)}` : ""}` : "No such record.");
    mark(answer, "title", `answered in ${duration(told.took_ms)}`);
  }

  async function showRecord() {
    const { offset } = told.walk.answer;
    if (Number(offset) < 0) return fill(record);
    try {
      const { record: it } = await get(`${api}/records/${data.partition}/${offset}`, { signal: context.signal });
      const part = (label, value) => [h("dt", {}, label), h("dd", {}, value ? visible(value.text.slice(0, 2000)) + (value.is_cut || value.text.length > 2000 ? "…" : "") : "null")];
      fill(record, h("dl", { class: "pairs" }, part("key", it.key), part("value", it.value)),
        h("p", {}, h("a", { href: `${api}/records?partition=${data.partition}&offset=${offset}` }, "Records from here on")),
        h("p", { class: "soft" }, `The server answered in ${duration(told.took_ms)}.`));
    } catch (error) {
      if (error.name !== "AbortError") fill(record, h("p", { class: "soft" }, error.message));
    }
  }

  onWidth(holder, (now) => { width = Math.max(120, Math.floor(now)); drawLog(); drawHandle(); drawWay(); });
  when.value = timeInput(at);
  tellSteps(stepOf());
  showRecord();
  return { leave() { clearTimeout(rest); } };
}
