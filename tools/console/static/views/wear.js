// The flash below the logs: what reaches it a day and for each byte appended, how long it lasts, which durability has a part in it.

import { bar, timeChart } from "../charts.js";
import { h, keyed, mark, put, section, table } from "../dom.js";
import { age, count, duration, number, perSecond, size } from "../format.js";

export const refresh = 5000;
const DAY_S = 86400;

export function mount(root, context, data) {
  const summary = h("p", { class: "soft" }), disks = h("div", { class: "stack" });
  const modes = table({
    caption: "Topics by durability", keyOf: (each) => each.mode, empty: "There are no topics.",
    columns: [{ label: "Durability" }, ...["Topics", "Size", "Appended", "Not synced"].map((label) => ({ label, className: "number" }))],
    row: (each) => h("tr", {}, h("td", { class: "name" }, each.mode), [0, 1, 2, 3].map(() => h("td", { class: "number" }))),
    update: (node, each) => [count(each.topics), size(each.size_bytes), perSecond(each.appended_bytes_per_second), each.loss_window_ms ? duration(each.loss_window_ms) : "nothing"]
      .forEach((text, i) => put(node.children[i + 1], text)),
  });
  root.append(h("div", { class: "title" }, h("h1", { tabindex: -1, "data-focus": true }, "Wear"), summary), disks, section("Durability", { className: "panel" }, modes.node));
  show(data);

  function show(told) {
    if (!told.is_known) return void put(summary, "The server has not reported yet.");
    const { per_second, appended_bytes, p99_ms } = told.syncs;
    put(summary, `${number(per_second)} syncs a second${per_second ? `, ${duration(p99_ms)} at the 99th percentile, one for ${size(appended_bytes)} appended` : ""}; the longest loss window since the start was ${duration(told.longest_unsynced_ms)}`);
    const process = { name: "The server's process", series: "written_by_process", ...told.process };
    const all = [...told.disks.map((each) => ({ ...each, title: each.name && `Disk ${each.name}`, series: `disk:${each.name}` })), { ...process, title: process.name }];
    keyed(disks, all.filter((each) => each.title), (each) => each.title, create, update);
    for (const node of disks.children) node.chart_.set(told.history);
    modes.set(told.durability);
  }

  return { update: show };
}

function create(each) {
  const chart = timeChart({ label: each.title, format: perSecond, height: 120, axes: true, base: 1024, least: 1,
    series: [{ key: each.series, name: "written" }, { key: "appended_bytes_per_second", name: "appended", className: "second" }] });
  const parts = { day: h("strong"), factor: h("p"), sofar: h("p", { class: "soft" }), life: h("p"), records: bar("Of what is written"), used: bar("Life") };
  const node = section(each.title, { className: "panel worn", note: h("span", { class: "soft path" }, each.paths?.join(", ")) },
    h("div", { class: "columns even" }, h("div", { class: "disks" }, h("p", { class: "split" }, parts.day), h("div", {}, parts.factor, parts.records.node), h("div", {}, parts.life, parts.used.node), parts.sofar), chart.node));
  node.chart_ = chart;
  node.parts_ = parts;
  return node;
}

function update(node, each) {
  const { day, factor, sofar, life, records, used } = node.parts_;
  put(day, each.bytes_per_day === null ? "Nothing is known of its rate yet" : `${size(each.bytes_per_day)} a day`);
  const times = each.bytes_per_appended_byte;
  put(factor, times === null ? "Nothing is appended now" : `${number(times)} bytes for each byte appended`);
  const share = times === null ? 0 : Math.min(1, 1 / times);
  records.set([{ share, className: "used" }], times === null ? "not known" : `${Math.round(100 * share)} % records, the rest syncs, indexes and journal`);
  put(sofar, each.lifetime_written_bytes ? `${size(each.lifetime_written_bytes)} since the file system was made` : `${size(each.disk_written_bytes ?? each.written_bytes)} ${each.paths ? "since the machine" : "since it"} started`);
  life.parentNode.hidden = !each.paths;
  const isEnding = each.life_used_percent > 80 || (each.pre_eol && each.pre_eol !== "normal");
  const told = [each.days_left !== null && `lasts ${age(each.days_left * DAY_S)} at the rate of the last day`, each.life_used_percent !== null && `${each.life_used_percent} % of its life used`, each.pre_eol && `blocks in reserve: ${each.pre_eol}`].filter(Boolean);
  put(life, told.join(", ") || "The disk reports no wear. Set disk_endurance_bytes to its rating");
  mark(life, "class", isEnding ? "bad" : "soft");
  used.node.toggleAttribute("hidden", each.life_used_percent === null);
  used.set([{ share: (each.life_used_percent ?? 0) / 100, className: isEnding ? "used bad" : "used" }], `${each.life_used_percent} % used`);
}
