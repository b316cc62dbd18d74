// Charts as SVG, drawn at the pixels that they have: lines over time, with a place to point at, and a text instead of the picture.

import { h, mark, put, s } from "./dom.js";
import { clock, niceEnd, timeTicks } from "./format.js";

const SPAN_MS = 15 * 60_000;
// Of a history that has just begun.
const LEAST_SPAN_MS = 2 * 60_000;
// Of one point, which has the largest value of it.
const STRETCH_MS = 5_000;
// Two samples that are farther apart are not joined.
const BROKEN_MS = 12_000;
const sizes = new ResizeObserver((entries) => {
  for (const entry of entries) entry.target._resized?.(entry.contentRect.width);
});

/** Call `draw(width)` now and whenever a node's width changes. */
export function onWidth(node, draw) {
  node._resized = draw;
  sizes.observe(node);
}

/**
 * Lines over the last 15 minutes. `series`: [{key, name, className}]; `format` makes texts of values, `base` 1024 for bytes.
 * With `axes` it has ticks and a legend. `set(history)` gives all values, `add(time, values)` one more moment.
 */
export function timeChart({ label, series, format, height = 56, axes = false, base = 10, least = 0 }) {
  const top = axes ? 8 : 3, bottom = axes ? 20 : 1;
  const svg = s("svg", { height, role: "img", tabindex: 0, class: axes ? "axes" : "" });
  const grid = s("g", { class: "grid", "aria-hidden": "true" }), lines = s("g", { "aria-hidden": "true" });
  const pointer = s("g", { class: "pointer", "aria-hidden": "true" });
  svg.append(grid, lines, pointer);
  const readout = h("p", { class: "readout" });
  const node = h("figure", { class: "chart" }, svg, axes && h("figcaption", { class: "legend" },
    series.map((each) => h("span", { class: `key ${each.className ?? ""}` }, each.name)), readout), !axes && readout);
  let times = [], values = {}, width = 0, pointed = null, end = 1, span = SPAN_MS;

  const x = (at) => width - (width * ((times.at(-1) ?? Date.now()) - at)) / span;
  const y = (value) => height - bottom - ((height - top - bottom) * value) / end;

  function draw() {
    if (!width) return;
    mark(svg, "width", width);
    mark(svg, "viewBox", `0 0 ${width} ${height}`);
    span = Math.max(LEAST_SPAN_MS, Math.min(SPAN_MS, times.at(-1) - times[0] || 0));
    let highest = least;
    for (const each of series) for (const value of values[each.key] ?? []) if (value > highest) highest = value;
    end = niceEnd(highest, base);
    lines.replaceChildren(...series.flatMap(drawn));
    if (axes) drawGrid();
    drawPointer();
    mark(svg, "aria-label", described());
  }

  function drawn(each) {
    const column = values[each.key] ?? [];
    let line = "", area = "", start = null, last = null;
    const finish = () => {
      if (start !== null) area += `L${last} ${y(0)}L${start} ${y(0)}Z`;
      start = null;
    };
    times.forEach((at, i) => {
      const value = column[i];
      const isJoined = start !== null && at - times[i - 1] < BROKEN_MS;
      if (value === null || value === undefined || !isJoined) finish();
      if (value === null || value === undefined) return;
      const place = `${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      line += (start === null ? "M" : "L") + place;
      area += (start === null ? "M" : "L") + place;
      if (start === null) start = x(at).toFixed(1);
      last = x(at).toFixed(1);
    });
    finish();
    return [s("path", { class: `area ${each.className ?? ""}`, d: area }), s("path", { class: `line ${each.className ?? ""}`, d: line })];
  }

  function drawGrid() {
    const now = times.at(-1) ?? Date.now();
    const marks = [0, end / 2, end].map((value) => [
      s("line", { x1: 0, x2: width, y1: y(value), y2: y(value) }),
      value > 0 && s("text", { x: 2, y: y(value) + 12 }, format(value)),
    ]);
    const ticks = timeTicks(now - span, now, Math.max(2, Math.min(6, width / 90))).map(({ at, text }) =>
      s("text", { x: x(at), y: height - 4, "text-anchor": x(at) < 30 ? "start" : x(at) > width - 30 ? "end" : "middle" }, text));
    grid.replaceChildren(...marks.flat().filter(Boolean), ...ticks);
  }

  function drawPointer() {
    if (pointed === null || !times.length) {
      pointer.replaceChildren();
      put(readout, "");
      return;
    }
    const i = nearest(times, pointed), at = times[i];
    const dots = series.filter((each) => values[each.key]?.[i] !== null && values[each.key]?.[i] !== undefined);
    pointer.replaceChildren(s("line", { x1: x(at), x2: x(at), y1: 0, y2: height - bottom }),
      ...dots.map((each) => s("circle", { class: each.className ?? "", cx: x(at), cy: y(values[each.key][i]), r: 3 })));
    const said = series.map((each) => `${series.length > 1 ? `${each.name} ` : ""}${format(values[each.key]?.[i])}`);
    put(readout, `${clock(at)}  ${said.join(" · ")}`);
  }

  function described() {
    if (!times.length) return `${label}: nothing is known yet`;
    const each = series.map(({ key, name }) => {
      const known = (values[key] ?? []).filter((value) => value !== null && value !== undefined);
      return known.length ? `${name} now ${format(known.at(-1))}, at most ${format(Math.max(...known))}` : `${name} not known`;
    });
    return `${label}, the last 15 minutes: ${each.join("; ")}`;
  }

  const point = (event) => {
    pointed = times.at(-1) - (span * (width - (event.clientX - svg.getBoundingClientRect().left))) / width;
    drawPointer();
  };
  const away = () => { pointed = null; drawPointer(); };
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerleave", away);
  svg.addEventListener("blur", away);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !times.length) return;
    event.preventDefault();
    const i = pointed === null ? times.length - 1 : nearest(times, pointed) + step;
    pointed = times[Math.max(0, Math.min(times.length - 1, i))];
    drawPointer();
  });
  onWidth(node, (now) => { width = Math.max(40, Math.floor(now)); draw(); });

  return {
    node,
    set(history) {
      times = history?.times?.slice() ?? [];
      values = Object.fromEntries(series.map(({ key }) => [key, history?.series?.[key]?.slice() ?? times.map(() => null)]));
      draw();
    },
    add(at, given) {
      const last = times.length - 1;
      if (at <= (times[last] ?? 0)) return;
      if (Math.floor(at / STRETCH_MS) === Math.floor(times[last] / STRETCH_MS)) {
        times[last] = at;
        for (const { key } of series) values[key][last] = larger(values[key][last], given[key]);
      } else {
        times.push(at);
        for (const { key } of series) (values[key] ??= []).push(given[key] ?? null);
      }
      while (times.length && times[0] < at - SPAN_MS) {
        times.shift();
        for (const { key } of series) values[key].shift();
      }
      draw();
    },
  };
}

const larger = (a, b) => (a === null || a === undefined ? b ?? null : b === null || b === undefined ? a : Math.max(a, b));

function nearest(times, at) {
  let low = 0, high = times.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low > 0 && at - times[low - 1] < times[low] - at ? low - 1 : low;
}

/** A line without axes for a row of a table; nothing where nothing happened. */
export function sparkline(values, { width = 84, height = 18 } = {}) {
  const svg = s("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  drawSparkline(svg, values);
  return svg;
}

export function drawSparkline(svg, values) {
  const width = Number(svg.getAttribute("width")), height = Number(svg.getAttribute("height"));
  const known = (values ?? []).filter((value) => value !== null);
  const highest = Math.max(...known, 0);
  if (known.length < 2 || !highest) {
    svg.replaceChildren();
    return;
  }
  const step = width / (known.length - 1);
  const line = known.map((value, i) => `${(i * step).toFixed(1)} ${(height - 1 - ((height - 3) * value) / highest).toFixed(1)}`).join("L");
  svg.replaceChildren(s("path", { class: "area", d: `M${line}L${width} ${height}L0 ${height}Z` }), s("path", { class: "line", d: `M${line}` }));
}

/** How full something is, as a bar: parts are [{share, className}]. */
export function bar(label) {
  const svg = s("svg", { class: "bar", height: 8, width: "100%", preserveAspectRatio: "none", viewBox: "0 0 1000 8", role: "img" });
  return {
    node: svg,
    set(parts, text) {
      let at = 0;
      svg.replaceChildren(s("rect", { class: "rest", width: 1000, height: 8 }), ...parts.map(({ share, className }) => {
        const wide = Math.max(0, Math.min(1000 - at, 1000 * share));
        const rect = s("rect", { class: className, x: at, width: wide, height: 8 });
        at += wide;
        return rect;
      }));
      mark(svg, "aria-label", `${label}: ${text}`);
    },
  };
}
