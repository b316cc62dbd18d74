// Links of the forwarder: state, backlog, rate, what is left, lost and in the way; paused and resumed.

import { send } from "../api.js";
import { timeChart } from "../charts.js";
import { fill, h, keyed, mark, put, section, table } from "../dom.js";
import { age, count, counted, duration, number, perSecond, size, time } from "../format.js";

export const refresh = 2000;

export function mount(root, context, data) {
  const summary = h("p", { class: "soft" }), links = h("div", { class: "stack" });
  root.append(h("div", { class: "title" }, h("h1", { tabindex: -1, "data-focus": true }, "Forward"), summary), links);
  show(data);

  function show(told) {
    put(summary, !told.state_dir ? "The console knows no state directory of triolog forward; --forward-state-dir names it"
      : `${counted(told.links.length, "link")} in ${told.state_dir}`);
    keyed(links, told.links, (each) => each.link, create, update);
    for (const node of links.children) node.at_?.(told.now_ms);
  }

  function create({ link }) {
    const chart = timeChart({ label: `Backlog of ${link} since this page was opened`, format: size, height: 110, axes: true, base: 1024, least: 1, series: [{ key: "backlog_bytes", name: "backlog since this page was opened" }] });
    const state = h("span", { class: "tag" }), to = h("span", { class: "soft" }), figures = h("dl", { class: "facts-list" }), problem = h("ul", { class: "reasons" });
    const button = h("button", { async onclick() {
      button.disabled = true;
      try {
        const told = await send("POST", `/forward/${encodeURIComponent(link)}/${button.does_}`);
        update(node, told);
        context.announce(`${link} is ${told.state}`);
      } catch (error) {
        context.announce(error.message);
        fill(problem, h("li", {}, error.message));
      }
      button.disabled = false;
    } });
    const partitions = table({
      caption: `Partitions of ${link}`, keyOf: (each) => `${each.topic}-${each.partition}`,
      columns: [{ label: "Partition" }, { label: "Upstream" }, ...["At", "Backlog", "", "Lost"].map((label) => ({ label, className: "number" }))],
      row: (each) => h("tr", {}, h("td", { class: "name" }, `${each.topic}-${each.partition}`), h("td", { class: "name" }, each.target), [0, 1, 2, 3].map(() => h("td", { class: "number" }))),
      update: (row, each) => [count(each.offset), counted(each.backlog_records, "record"), size(each.backlog_bytes), count(each.lost_records)].forEach((text, i) => put(row.children[i + 2], text)),
    });
    const node = section(link, { className: "panel", note: h("span", { class: "split" }, to, state, context.console.allow_changes && button) }, problem,
      h("div", { class: "columns even" }, figures, chart.node), partitions.node);
    node.parts_ = { chart, state, to, figures, problem, button, partitions };
    node.at_ = (now) => node.told_.backlog_bytes !== undefined && chart.add(now, node.told_);
    return node;
  }

  return { update: show };
}

function update(node, each) {
  const { chart, state, to, figures, problem, button, partitions } = node.parts_;
  node.told_ = each;
  const isRunning = each.partitions !== undefined;
  put(state, each.state);
  mark(state, "class", ["running", "draining", "connecting", "waiting", "paused"].includes(each.state) ? "tag" : "tag bad");
  put(to, isRunning ? `${each.delivery} to ${each.to}` : each.is_paused ? "paused" : "");
  button.does_ = each.is_paused ? "resume" : "pause";
  put(button, each.is_paused ? "Resume" : "Pause");
  button.hidden = !isRunning;
  chart.node.hidden = figures.hidden = partitions.node.hidden = !isRunning;
  partitions.set(each.partitions ?? []);
  const troubles = Object.entries(each.troubles ?? {}).map(([topic, why]) => `Topic ${topic} has stopped: ${why}`);
  const said = [...troubles, each.error && `${each.error_ms > 0 ? `${time(each.error_ms)}: ` : ""}${each.error}`].filter(Boolean);
  keyed(problem, said, (text) => text, (text) => h("li", {}, text));
  const facts = !isRunning ? [] : [["Backlog", `${counted(each.backlog_records, "record")}, ${size(each.backlog_bytes)}`], ["Behind", each.backlog_ms ? duration(each.backlog_ms) : "nothing"],
    ["Rate", `${number(each.records_per_second)} records/s, ${perSecond(each.bytes_per_second)}`], ["Empty in", each.eta_s === null ? (each.backlog_records ? "not known" : "is empty") : age(each.eta_s)],
    ["Forwarded", `${counted(each.records, "record")}, ${size(each.bytes)}`], ["Lost before", counted(each.lost_records, "record"), each.lost_records], ["Dead letters", count(each.dead_letter_records), each.dead_letter_records],
    ["Twice avoided", counted(each.avoided_records, "record")], ["Failures", count(each.failures)]];
  keyed(figures, facts, ([name]) => name, ([name]) => h("div", {}, h("dt", {}, name), h("dd")), (row, [, text, isBad]) => mark(put(row.lastChild, text), "class", isBad ? "bad" : null));
}
