// Partitions as lanes, segments as bars in them: over time, or over offsets. A bar's height tells its size.

import { onWidth } from "./charts.js";
import { fill, h, mark, put, s } from "./dom.js";
import { count, counted, number, range, size, time, timeTicks } from "./format.js";

const HEIGHT = 34;
const LEAST = 5;
const AXIS = 22;
const SHOWN = 24;

/** The drawing of a topic. `set(partitions)` brings it up to date. */
export function lanes({ topic, hasSegments }) {
  let partitions = [], by = "time", width = 0, all = false, pointed = null;
  const axis = s("svg", { height: AXIS, class: "lane-axis", "aria-hidden": "true" });
  const fades = s("svg", { width: 0, height: 0, class: "fades", "aria-hidden": "true" }, s("defs", {}, ["fade", "fade-compacted"].map((id) =>
    s("linearGradient", { id }, s("stop", { offset: 0, class: `${id} start` }), s("stop", { offset: 0.7, class: id })))));
  const body = h("tbody");
  const detail = h("p", { class: "detail", "aria-live": "polite" });
  const more = h("button", { hidden: true, onclick() { all = true; draw(); } });
  const choice = ["time", "offset"].map((name) => h("button", { "aria-pressed": String(name === by), onclick() { by = name; draw(); } }, name));
  const holder = h("th", { scope: "col", class: "lane" }, h("span", { class: "unseen" }, "Segments, drawn"), axis);
  const node = h("section", { class: "panel lanes", "aria-label": "Partitions" },
    h("div", { class: "head" }, h("h2", {}, hasSegments ? "Segments" : "Partitions"), h("div", { class: "choice", role: "group", "aria-label": "Drawn over" }, choice)),
    h("div", { class: "table" }, h("table", {}, h("caption", { class: "unseen" }, "Partitions and their segments"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span", { class: "unseen" }, "Partition")), holder,
        h("th", { scope: "col", class: "number" }, "Records"), h("th", { scope: "col", class: "number" }, "Size"), h("th", { scope: "col", class: "number wide" }, "Segments"))), body)),
    h("div", { class: "split" }, detail, more), fades);
  onWidth(holder, (now) => { width = Math.max(60, Math.floor(now)); draw(); });

  const rows = new Map();

  function rowOf({ partition }) {
    const svg = s("svg", { height: HEIGHT, class: "lane", role: "img", tabindex: 0 });
    const cells = [h("th", { scope: "row" }, partition), h("td", { class: "lane" }, svg), h("td", { class: "number" }), h("td", { class: "number" }), h("td", { class: "number wide" })];
    const row = { svg, cells, node: h("tr", {}, cells), partition, at: -1 };
    svg.addEventListener("pointermove", (event) => {
      const place = event.clientX - svg.getBoundingClientRect().left;
      const found = row.bars?.findLastIndex((bar) => place >= bar.x - 1 && place <= bar.x + bar.wide + 1) ?? -1;
      point(row, found);
    });
    svg.addEventListener("pointerleave", () => point(row, -1));
    svg.addEventListener("focus", () => point(row, (row.bars?.length ?? 0) - 1));
    svg.addEventListener("blur", () => point(row, -1));
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step && row.bars?.length) {
        event.preventDefault();
        point(row, Math.max(0, Math.min(row.bars.length - 1, row.at + step)));
      }
      const next = { ArrowUp: row.node.previousSibling, ArrowDown: row.node.nextSibling }[event.key];
      if (next) {
        event.preventDefault();
        next.querySelector("svg").focus();
      }
    });
    return row;
  }

  function point(row, at) {
    pointed?.classList.remove("pointed");
    row.at = at;
    pointed = row.bars?.[at]?.node ?? null;
    pointed?.classList.add("pointed");
    put(detail, at >= 0 ? text(row.bars[at].segment, row.partition) : hint());
  }

  const hint = () => (partitions.some((each) => each.segments.length) ? "Height is size. Point at a bar, or walk with the arrow keys." : "There are no records.");

  function text(segment, partition) {
    const what = segment.count > 1 ? `${count(segment.count)} segments` : segment.active && hasSegments ? "active segment" : "segment";
    const where = segment.guessed ? `until ${time(segment.max)}, its first time is not known` : range(Number(segment.least), Number(segment.max));
    const records = BigInt(segment.next) - BigInt(segment.base);
    return [`Partition ${partition}, ${what}`, `offsets ${count(segment.base)} – ${count(segment.next)} (${number(Number(records))})`, size(segment.size), where,
      segment.compacted ? "compacted" : null].filter(Boolean).join(" · ");
  }

  function extent() {
    let low = Infinity, high = -Infinity;
    for (const each of partitions) for (const segment of each.segments) {
      const [from, to] = by === "time" ? [Number(segment.least), Number(segment.max)] : [Number(segment.base), Number(segment.next)];
      if (by === "time" && to < 0) continue;
      low = Math.min(low, from < 0 ? to : from);
      high = Math.max(high, to);
    }
    return low > high ? null : [low, high === low ? low + 1 : high];
  }

  function draw() {
    choice.forEach((button, i) => mark(button, "aria-pressed", String(["time", "offset"][i] === by)));
    if (!width) return;
    const shown = all ? partitions : partitions.slice(0, SHOWN);
    more.hidden = shown.length === partitions.length;
    put(more, `Show all ${partitions.length} partitions`);
    const bounds = extent();
    const x = bounds ? (value) => ((value - bounds[0]) / (bounds[1] - bounds[0])) * (width - 2) + 1 : () => 0;
    const largest = Math.max(1, ...partitions.flatMap((each) => each.segments.map((segment) => segment.size)));
    drawAxis(bounds, x);
    const nodes = shown.map((each) => {
      const row = rows.get(each.partition) ?? rowOf(each);
      rows.set(each.partition, row);
      drawLane(row, each, x, largest);
      put(row.cells[2], number(Number(each.records)));
      mark(row.cells[2], "title", `offsets ${count(each.log_start_offset)} – ${count(each.high_watermark)}`);
      put(row.cells[3], size(each.size_bytes));
      put(row.cells[4], count(each.segment_count));
      return row.node;
    });
    if (nodes.length !== body.children.length) fill(body, nodes);
    if (!pointed) put(detail, hint());
  }

  function drawAxis(bounds, x) {
    mark(axis, "width", width);
    if (!bounds) return axis.replaceChildren();
    const most = Math.max(2, Math.floor(width / 95));
    const ticks = by === "time" ? timeTicks(bounds[0], bounds[1], most) : offsetTicks(bounds, most);
    axis.replaceChildren(...ticks.map(({ at, text: said }) => {
      const place = x(at);
      return s("text", { x: place, y: 14, "text-anchor": place < 30 ? "start" : place > width - 30 ? "end" : "middle" }, said);
    }), ...ticks.map(({ at }) => s("line", { x1: x(at), x2: x(at), y1: 18, y2: AXIS })));
  }

  function drawLane(row, told, x, largest) {
    const { svg } = row;
    mark(svg, "width", width);
    const focused = row.at;
    row.bars = [];
    const drawn = [s("line", { class: "floor", x1: 0, x2: width, y1: HEIGHT - .5, y2: HEIGHT - .5 })];
    for (const segment of told.segments) {
      const [from, to] = by === "time" ? [Number(segment.least), Number(segment.max)] : [Number(segment.base), Number(segment.next)];
      if (by === "time" && to < 0) continue;
      const left = x(from < 0 ? to : from), right = x(to);
      const wide = Math.max(1.5, right - left - (right - left > 4 ? 1 : 0));
      const isFaded = by === "time" && segment.guessed;
      const high = LEAST + (HEIGHT - LEAST - 5) * Math.sqrt(segment.size / largest);
      const rect = s("rect", { class: `segment${segment.active ? " active" : ""}${segment.compacted ? " compacted" : ""}${isFaded ? " faded" : ""}`, fill: isFaded ? `url(#${segment.compacted ? "fade-compacted" : "fade"})` : null, x: left.toFixed(1), width: wide.toFixed(1), y: (HEIGHT - 1 - high).toFixed(1), height: high.toFixed(1), rx: wide > 6 ? 2 : 0 });
      drawn.push(rect);
      row.bars.push({ x: left, wide, node: rect, segment });
    }
    for (const gap of told.gaps) {
      const [from, to] = placeOf(gap, told.segments, x);
      drawn.push(s("rect", { class: `gap${gap.accepted_ms < 0 ? "" : " accepted"}`, x: (from - 1).toFixed(1), width: Math.max(3, to - from).toFixed(1), y: 1, height: HEIGHT - 2 },
        s("title", {}, `Offsets ${count(gap.start)} – ${count(gap.end)} were taken out by damage`)));
    }
    svg.replaceChildren(...drawn);
    mark(svg, "aria-label", described(told));
    if (focused >= 0 && row.bars[focused]) {
      pointed = row.bars[focused].node;
      pointed.classList.add("pointed");
    }
  }

  /** Where a gap is: by offset exactly, by time between what stands before it and behind it. */
  function placeOf(gap, segments, x) {
    if (by === "offset") return [x(Number(gap.start)), x(Number(gap.end))];
    const inside = segments.find((each) => Number(each.base) <= Number(gap.start) && Number(gap.start) < Number(each.next));
    if (inside) {
      const share = (offset) => Number(inside.least) + ((Number(inside.max) - inside.least) * (offset - inside.base)) / Math.max(1, inside.next - inside.base);
      return [x(share(Number(gap.start))), x(Math.min(Number(inside.max), share(Number(gap.end))))];
    }
    const behind = segments.find((each) => Number(each.base) >= Number(gap.end));
    const before = segments.findLast((each) => Number(each.next) <= Number(gap.start));
    const at = x(Number((before ?? behind)?.[before ? "max" : "least"] ?? 0));
    return [at, behind ? Math.max(at, x(Number(behind.least))) : at];
  }

  function described(told) {
    if (told.error) return `Partition ${told.partition}: ${told.error}`;
    const last = told.segments.at(-1);
    const when = last ? `, ${range(Math.min(...told.segments.map((each) => Number(each.least))), Math.max(...told.segments.map((each) => Number(each.max))))}` : "";
    const gone = told.gaps.length ? `, ${counted(told.gaps.length, "gap")}` : "";
    return `${topic}, partition ${told.partition}: ${counted(told.segment_count, "segment")}${when}${gone}`;
  }

  return { node, set(given) { partitions = given; draw(); } };
}

function offsetTicks([from, to], most) {
  const raw = (to - from) / most;
  const power = 10 ** Math.floor(Math.log10(Math.max(1, raw)));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= raw);
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push({ at, text: number(at) });
  return ticks;
}
