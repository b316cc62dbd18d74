// The overview: is it ready, what goes in and out, what could be lost, how long the disk lasts, what is damaged, who lags behind, how mirrors and links are.

import { bar, drawSparkline, sparkline, timeChart } from "../charts.js";
import { fill, h, keyed, mark, put, section, table } from "../dom.js";
import { age, clock, count, counted, duration, number, parts, perSecond, size } from "../format.js";

export const refresh = 15_000;

const ms = (value) => duration(value);
const rate = (value) => (value === null || value === undefined ? "–" : `${number(value)} /s`);

const FIGURES = [
  { key: "appended_records_per_second", label: "Records in", format: rate, note: (v) => perSecond(v.appended_bytes_per_second) },
  { key: "fetched_bytes_per_second", label: "Fetched", format: perSecond, base: 1024, note: (v) => `${rate(v.requests_per_second)} requests` },
  { key: "loss_window_ms", label: "A power cut could take", format: (v) => (v === 0 ? "nothing" : duration(v)), least: 10,
    note: (v) => (v.loss_window_records ? counted(v.loss_window_records, "record") : "all is on the disk") },
  { key: "sync_p99_ms", label: "Sync, p99", format: ms, note: (v) => (v.sync_p50_ms === null ? "no syncs now" : `p50 ${ms(v.sync_p50_ms)}, ${rate(v.syncs_per_second)}`) },
];
const TRAFFIC = [
  { key: "appended_bytes_per_second", name: "produced" },
  { key: "fetched_bytes_per_second", name: "fetched", className: "second" },
];

export function mount(root, context, data) {
  const heading = h("h1", { tabindex: -1, "data-focus": true, "data-title": "Overview" });
  const lead = h("p", { class: "lead" });
  const reasons = h("ul", { class: "reasons" });
  const facts = h("p", { class: "soft facts" });
  const figures = FIGURES.map(figure);
  const traffic = timeChart({ label: "Traffic", series: TRAFFIC, format: perSecond, height: 180, axes: true, base: 1024, least: 1 });
  const disks = h("ul", { class: "disks" });
  const damage = h("div", {});
  let sparks = data.sparks;
  const lineOf = (key) => sparks?.series[key];
  const topics = busiest(lineOf), groups = lagging(lineOf), calls = apis();
  const mirrors = h("ul", { class: "plain" }), mirrored = section("Mirrors", { className: "panel" }, mirrors);
  const links = forwarding(), more = h("span", { class: "soft" }), forward = section("Forward", { className: "panel", note: more }, links.node);

  root.append(h("div", { class: "hero" }, heading, lead, reasons, facts), h("div", { class: "figures" }, figures.map((each) => each.node)),
    h("div", { class: "columns" },
      section("Traffic", { className: "panel grow" }, traffic.node),
      h("div", { class: "stack" }, section("Disk", { className: "panel" }, disks), section("Damage", { className: "panel" }, damage))),
    h("div", { class: "columns even" },
      section("Busiest topics", { className: "panel", note: h("a", { href: "/topics" }, "all topics") }, topics.node),
      section("Groups behind", { className: "panel" }, groups.node)),
    mirrored, forward, section("Calls", { className: "panel" }, calls.node));

  traffic.set(data.history);
  for (const each of figures) each.chart.set(data.history);
  show(data);

  function show(told) {
    const { ready, values, status, server } = told;
    const how = !status.is_connected ? "lost" : ready.is_ready ? "ready" : "trouble";
    mark(heading, "class", how);
    put(heading, { lost: "No answer", ready: "Ready", trouble: "Not ready" }[how]);
    keyed(reasons, ready.reasons, (text) => text, (text) => h("li", {}, text));
    if (!values) {
      put(lead, status.is_connected ? "Looking for the first time." : `${context.console.server} does not answer since ${clock(status.since_ms)}.`);
      return;
    }
    put(lead, sentence(values));
    put(facts, [`${counted(values.topic_count, "topic")}, ${counted(values.partitions, "partition")}, ${size(values.log_bytes)}`,
      connections(values.connections), values.open_transactions ? counted(values.open_transactions, "open transaction") : null,
      values.waiting_appends ? `${counted(values.waiting_appends, "append")} waiting` : null,
      values.compacting ? `compacting ${values.compacting}` : null, server ? `version ${server.version}, node ${server.node_id}` : null].filter(Boolean).join(" · "));
    for (const each of figures) each.set(values);
    drawDisks(told.directories);
    drawDamage(told.damage, values);
    topics.set(told.topics.filter((each) => !each.topic.startsWith("__") || each.appended_bytes_per_second));
    groups.set(told.lags);
    calls.set(told.apis);
    mirrored.hidden = !told.mirrors.length;
    keyed(mirrors, told.mirrors, (each) => each.text, (each) => h("li", {}, each.text));
    forward.hidden = !told.links?.length;
    links.set(told.links ?? []);
    put(more, told.link_count > told.links?.length ? `${told.links.length} of ${counted(told.link_count, "link")}` : "");
  }

  function drawDisks(directories) {
    keyed(disks, directories, (each) => each.path, (each) => {
      const filled = bar(each.path);
      const node = h("li", {}, h("p", { class: "split" }, h("strong", {}), h("span", { class: "soft" })), filled.node, h("p", { class: "soft path" }, each.path));
      node.filled_ = filled;
      return node;
    }, (node, each) => {
      const used = each.total_bytes ? 1 - each.free_bytes / each.total_bytes : 0;
      const isLow = each.is_refusing || each.error !== null || used > 0.9;
      const [big, small] = node.firstChild.children;
      put(big, each.error !== null ? "out of service" : each.is_refusing ? "takes no appends" : each.full_in_s !== null ? `full in ${age(each.full_in_s)}` : `${size(each.free_bytes)} free`);
      mark(big, "class", isLow ? "bad" : null);
      put(small, each.full_in_s !== null ? `${size(each.free_bytes)} of ${size(each.total_bytes)} free` : `of ${size(each.total_bytes)}`);
      node.filled_.set([{ share: used, className: isLow ? "used bad" : "used" }, { share: each.total_bytes ? each.reserve_bytes / each.total_bytes : 0, className: "reserve" }],
        `${Math.round(100 * used)} % used`);
    });
  }

  function drawDamage(told, values) {
    const lines = [
      told.gaps && [told.open_gaps ? "bad" : "", `${counted(told.gaps, "gap")}, ${counted(told.gap_records, "record")} gone` + (told.open_gaps ? `, ${count(told.open_gaps)} not accepted` : ", all accepted")],
      told.scrub_damages && ["bad", `${counted(told.scrub_damages, "damage")} found by scrubbing`],
      values.failed_syncs && ["bad", `${counted(values.failed_syncs, "sync")} failed`],
      values.partitions_offline && ["bad", `${counted(values.partitions_offline, "partition")} offline`],
      told.dropped_records && ["bad", `${counted(told.dropped_records, "record")} went before a group that holds them had read them`],
      told.uncleanable && ["bad", `${counted(told.uncleanable, "partition")} not compacted any more`],
    ].filter(Boolean);
    const text = JSON.stringify([lines, told.topics, told.scrub_passes]);
    if (damage.said_ === text) return;
    damage.said_ = text;
    fill(damage, lines.length
      ? h("ul", { class: "plain" }, lines.map(([className, line]) => h("li", { class: className }, line)))
      : h("p", {}, h("strong", {}, "None"), h("span", { class: "soft" }, told.scrub_passes ? ` found in ${counted(told.scrub_passes, "pass", "passes")} over all segments` : " is known")),
    told.topics.length > 0 && h("p", { class: "soft" }, "In ", told.topics.map((name, i) => [i > 0 && ", ", h("a", { href: `/topics/${encodeURIComponent(name)}` }, name)])));
  }

  return {
    update(told) {
      sparks = told.sparks;
      show(told);
    },
    sample(told) {
      if (told.values && told.status.is_connected) {
        traffic.add(told.now_ms, told.values);
        for (const each of figures) each.chart.add(told.now_ms, told.values);
      }
      show(told);
    },
  };
}

function sentence(values) {
  const incoming = values.appended_records_per_second, out = values.fetched_bytes_per_second;
  if (incoming === null) return "Looking.";
  const moves = incoming || out ? `${incoming ? `${number(incoming)} records a second come in` : "Nothing comes in"}, ${out ? `${perSecond(out)} go out` : "nothing goes out"}` : "Nothing comes in, nothing goes out";
  return `${moves}.`;
}

function connections(told) {
  const each = Object.entries(told).filter(([, number]) => number).map(([name, number]) => `${number} ${name}`);
  return each.length ? `${each.join(" + ")} connection${Object.values(told).reduce((a, b) => a + b, 0) === 1 ? "" : "s"}` : "no connections";
}

function figure({ key, label, format, note, base, least }) {
  const value = h("strong"), unit = h("span", { class: "unit" }), beside = h("p", { class: "soft" });
  const chart = timeChart({ label, series: [{ key, name: label }], format, base, least });
  const node = h("section", { class: "figure", "aria-label": label }, h("h2", {}, label), h("p", { class: "value" }, value, unit), beside, chart.node);
  return {
    node, chart,
    set(values) {
      const [big, small] = parts(format(values[key]));
      put(value, big);
      put(unit, small);
      put(beside, note(values));
    },
  };
}

/** Texts of a row's cells behind the first; where a cell has a line, its values. */
function cells(node, texts) {
  texts.forEach((text, i) => {
    const cell = node.children[i + 1], line = cell.querySelector("svg");
    if (line) drawSparkline(line, text);
    else put(cell, text);
  });
}

function busiest(lineOf) {
  return table({
    caption: "Busiest topics", keyOf: (each) => each.topic, empty: "There are no topics.",
    columns: [{ label: "Topic" }, { label: h("span", { class: "unseen" }, "15 minutes"), className: "wide" }, { label: "Records", className: "number" }, { label: "In", className: "number" }, { label: "Out", className: "number" }],
    row: (each) => h("tr", {}, h("td", {}, h("a", { class: "row name", href: `/topics/${encodeURIComponent(each.topic)}` }, each.topic)), h("td", { class: "wide" }, sparkline([])), [0, 1, 2].map(() => h("td", { class: "number" }))),
    update: (node, each) => cells(node, [lineOf(`topic:${each.topic}`), number(each.records), each.appended_bytes_per_second ? perSecond(each.appended_bytes_per_second) : "·", each.fetched_bytes_per_second ? perSecond(each.fetched_bytes_per_second) : "·"]),
  });
}

function lagging(lineOf) {
  return table({
    caption: "Groups by lag", keyOf: (each) => each.group, empty: "No group lags.",
    columns: [{ label: "Group" }, { label: h("span", { class: "unseen" }, "15 minutes"), className: "wide" }, { label: "Topics" }, { label: "Lag", className: "number" }],
    row: (each) => h("tr", {}, h("td", {}, h("a", { class: "name", href: `/groups/${encodeURIComponent(each.group)}` }, each.group)), h("td", { class: "wide" }, sparkline([])), h("td", { class: "soft" }), h("td", { class: "number" })),
    update: (node, each) => cells(node, [lineOf(`group:${each.group}`), each.topics.slice(0, 3).join(", ") + (each.topics.length > 3 ? ` and ${each.topics.length - 3} more` : ""), count(each.lag)]),
  });
}

function apis() {
  return table({
    caption: "Calls by rate", keyOf: (each) => `${each.protocol} ${each.api}`, empty: "No calls in the last second.",
    columns: [{ label: "Call" }, { label: "Per second", className: "number" }, { label: "Errors", className: "number" }, { label: "p50", className: "number wide" }, { label: "p99", className: "number" }],
    row: (each) => h("tr", {}, h("td", {}, h("span", { class: "soft" }, `${each.protocol} `), each.api), ["", "", " wide", ""].map((more) => h("td", { class: `number${more}` }))),
    update(node, each) {
      cells(node, [number(each.per_second), each.errors_per_second ? `${number(each.errors_per_second)} /s` : "·", duration(each.p50_ms), duration(each.p99_ms)]);
      mark(node.children[2], "class", each.errors_per_second ? "number bad" : "number");
    },
  });
}

function forwarding() {
  return table({
    caption: "Links of triolog forward", keyOf: (each) => each.link,
    columns: [{ label: "Link" }, { label: "State" }, { label: "Backlog", className: "number" }, { label: "Rate", className: "number" }, { label: "Empty in", className: "number wide" }, { label: "Lost", className: "number" }],
    row: (each) => h("tr", {}, h("td", {}, h("a", { class: "row name", href: "/forward" }, each.link)), h("td"), ["", "", " wide", ""].map((more) => h("td", { class: `number${more}` }))),
    update(node, each) {
      const isKnown = each.backlog_bytes !== undefined;
      cells(node, [each.state + (each.stopped_topics ? `, ${counted(each.stopped_topics, "topic")} stopped` : ""),
        ...(isKnown ? [size(each.backlog_bytes), perSecond(each.bytes_per_second), each.backlog_records ? each.eta_s === null ? "not known" : age(each.eta_s) : "is empty", count(each.lost_records)] : ["", "", "", ""])]);
      mark(node.children[1], "class", each.is_bad ? "bad" : null);
      mark(node.children[5], "class", each.lost_records ? "number bad" : "number");
    },
  });
}
