// One topic: partitions as bars of segments over time, rates, gaps, configuration with sources.

import { timeChart } from "../charts.js";
import { fill, h, put, section, table } from "../dom.js";
import { age, count, counted, duration, number, perSecond, size, time } from "../format.js";
import { lanes } from "../lanes.js";
import { topicHead } from "../topic_head.js";

export const refresh = 5000;

const SOURCES = { topic: "set for this topic", server: "the server's setting", default: "default" };

export function mount(root, context, data) {
  const facts = h("p", { class: "soft" });
  const rate = timeChart({ label: `Bytes into ${data.name}`, series: [{ key: `topic:${data.name}`, name: "in" }], format: perSecond, base: 1024, height: 44 });
  const now = h("p", { class: "split" });
  const drawing = lanes({ topic: data.name, hasSegments: data.has_segments });
  const gaps = h("div", { hidden: true });
  const config = configuration();

  root.append(topicHead(data.name, "", facts), drawing.node, gaps,
  h("div", { class: "columns" }, section("Configuration", { className: "panel grow", note: config.only }, config.node),
    h("div", { class: "stack" }, section("In, 15 minutes", { className: "panel" }, now, rate.node))));
  show(data);

  function show(told) {
    const records = told.partitions.reduce((sum, each) => sum + BigInt(each.records), 0n);
    const bytes = told.partitions.reduce((sum, each) => sum + each.size_bytes, 0);
    const segments = told.partitions.reduce((sum, each) => sum + each.segment_count, 0);
    put(facts, `${counted(told.partitions.length, "partition")} · ${counted(String(records), "record")} · ${size(bytes)} in ${counted(segments, "segment")}`);
    drawing.set(told.partitions);
    drawGaps(told.partitions);
    config.set(told.config);
    rate.set(told.history);
    rate.node.hidden = !told.history.series[`topic:${told.name}`];
    const { appended_records_per_second: appended, fetched_bytes_per_second: fetched, loss_window_ms: loss } = told.values;
    fill(now, h("span", {}, h("strong", {}, number(appended)), h("span", { class: "soft" }, " records/s")),
      h("span", { class: "soft" }, `out ${perSecond(fetched)}`, loss ? `, ${duration(loss)} not synced` : ""));
  }

  function drawGaps(partitions) {
    const every = partitions.flatMap((each) => each.gaps.map((gap) => ({ partition: each.partition, ...gap })));
    const said = JSON.stringify(every);
    if (gaps.said_ === said) return;
    gaps.said_ = said;
    gaps.hidden = !every.length;
    if (!every.length) return fill(gaps);
    const list = table({
      caption: "Offsets lost to corruption", keyOf: (each) => `${each.partition} ${each.start}`,
      columns: [{ label: "Partition" }, { label: "Offsets" }, { label: "Records", className: "number" }, { label: "Found" }, { label: "Kept in" }, { label: "Readers" }],
      row: (each) => h("tr", {}, h("td", {}, each.partition), h("td", {}, `${count(each.start)} – ${count(each.end)}`), h("td", { class: "number" }, count(each.records)),
        h("td", {}, time(each.found_ms)), h("td", { class: "name" }, each.file ?? "nothing is kept"),
        h("td", { class: each.accepted_ms < 0 ? "bad" : "" }, each.accepted_ms < 0 ? "not accepted yet" : `pass over it since ${time(each.accepted_ms)}`)),
    });
    list.set(every);
    fill(gaps, section("Gaps", { className: "panel" }, list.node));
  }

  return { update: show };
}

function configuration() {
  let every = [], isAll = false;
  const only = h("button", { class: "plain", onclick() { isAll = !isAll; show(); } });
  const list = table({
    caption: "Configuration", keyOf: (each) => each.key, empty: "Every key has its default.",
    columns: [{ label: "Key" }, { label: "Value" }, { label: "From" }],
    row: (each) => h("tr", {}, h("td", { class: "name" }, each.key), h("td", { class: "name" }), h("td", {})),
    update(node, each) {
      const said = meaning(each);
      fill(node.children[1], each.value === "" ? "–" : each.value, said && h("span", { class: "soft means" }, said));
      put(node.children[2], SOURCES[each.source] ?? each.source);
      node.children[2].className = each.source === "default" ? "soft" : "";
    },
  });
  const show = () => {
    list.set(isAll ? every : every.filter((each) => each.source !== "default"));
    put(only, isAll ? "only what is set" : `all ${every.length} keys`);
  };
  return { node: list.node, only, set(entries) { every = entries; show(); } };
}

/** A size or a time in words, where the number does not say it. */
function meaning({ key, value }) {
  if (!/^-?\d+$/.test(value)) return null;
  const isLimit = /\.(ms|bytes|messages)$/.test(key);
  if (isLimit && (value === "-1" || BigInt(value) >= 2n ** 62n)) return "no limit";
  const number = Number(value);
  if (number < 1000) return null;
  if (key.endsWith(".ms")) return age(number / 1000);
  return key.endsWith(".bytes") ? size(number) : null;
}
