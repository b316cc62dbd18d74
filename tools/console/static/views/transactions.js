// Transactional ids and producers: what is open, what hangs, and an end to it.

import { send } from "../api.js";
import { askFirst } from "../asking.js";
import { choose, h, mark, put, section, table, visible } from "../dom.js";
import { count, counted, duration, time } from "../format.js";

export const refresh = 3000;

export function mount(root, context, data) {
  const facts = h("p", { class: "soft" });
  const abort = (body, what) => data.can_change && h("button", { class: "plain", onclick: () => askFirst({ title: `Abort ${what}?`, button: "Abort",
    text: "Readers of committed records will never see its records, and its producer is fenced off.", act: async () => { await send("POST", "/transactions/abort", body); context.refresh(); } }) }, "abort");
  const set = (cell, text) => put(cell, text ?? "–");
  const ids = table({ caption: "Transactional ids", keyOf: (each) => `${each.transactional_id} ${each.producer_id} ${each.producer_epoch}`, empty: "There are none.",
    columns: [["Transactional id"], ["State"], ["Producer", 1], ["Partitions", 1], ["Open for"], ["Last used"], ["Abort"]].map(([label, isNumber]) => ({ label, className: isNumber ? "number" : "" })),
    row: (each) => h("tr", {}, h("td", { class: "name" }, visible(each.transactional_id)), h("td"), h("td", { class: "number" }, `${each.producer_id ?? "–"} / ${each.producer_epoch ?? "–"}`),
      h("td", { class: "number" }), h("td"), h("td"), h("td", {}, abort({ transactional_id: each.transactional_id }, `the transaction of ${each.transactional_id}`))),
    update(node, each) {
      const [, state, , partitions, open, last, act] = node.children;
      set(state, each.state);
      set(partitions, count(each.partition_count));
      set(open, `${each.open_ms === null ? "at most" : `${duration(each.open_ms)} of`} ${duration(each.timeout_ms)}`);
      set(last, time(each.last_update_timestamp));
      if (act.firstChild) act.firstChild.hidden = each.open_ms === null;
    } });
  const producers = table({ caption: "Producers", keyOf: (each) => `${each.topic} ${each.partition} ${each.producer_id} ${each.producer_epoch}`, empty: "No partition has anything open.",
    columns: [["Topic"], ["Partition", 1], ["Producer", 1], ["Last sequence", 1], ["Last written"], ["Open since offset", 1], ["State"], ["Abort"]].map(([label, isNumber]) => ({ label, className: isNumber ? "number" : "" })),
    row: (each) => h("tr", {}, h("td", { class: "name" }, each.topic), h("td", { class: "number" }, each.partition), h("td", { class: "number" }, `${each.producer_id} / ${each.producer_epoch}`),
      h("td", { class: "number" }), h("td"), h("td", { class: "number" }), h("td"), h("td", {}, abort({ topic: each.topic, partition: each.partition, producer_id: each.producer_id }, `the open transaction of producer ${each.producer_id} on ${each.topic}-${each.partition}`))),
    update(node, each) {
      const [, , , sequence, last, since, how, act] = node.children;
      set(sequence, count(each.last_sequence));
      set(last, time(each.last_timestamp));
      set(since, count(each.transaction_start_offset));
      put(how, each.is_hanging ? "hanging" : each.transaction_start_offset !== null ? "open" : "");
      mark(how, "class", each.is_hanging ? "bad" : null);
      if (act.firstChild) act.firstChild.hidden = !each.is_hanging;
    } });
  const topic = choose("Producers of", [["", "all topics, open ones"], ...data.topics.map((name) => [name, name])], data.topic ?? "",
    (value) => context.navigate(`/transactions${value ? `?topic=${encodeURIComponent(value)}` : ""}`, { replace: true }));
  root.append(h("div", { class: "title" }, h("h1", { tabindex: -1, "data-focus": true }, "Transactions"), facts),
    section("Transactional ids", { className: "panel" }, ids.node), section("Producers on partitions", { className: "panel", note: topic }, producers.node));
  show(data);

  function show(told) {
    const open = told.transactions.filter((each) => each.open_ms !== null).length, hanging = told.producers.filter((each) => each.is_hanging).length;
    put(facts, `${counted(told.transactions.length + told.left_out, "transactional id")}, ${open} open, ${hanging} hanging${told.left_out || told.producers_left_out ? "; not all are shown" : ""}`);
    ids.set(told.transactions);
    producers.set(told.producers);
  }
  return { update: show };
}
