// One group: lag by partition and over time, members and what they read, a reset with what it would mean.

import { get, send } from "../api.js";
import { askFirst } from "../asking.js";
import { timeChart } from "../charts.js";
import { choose, fill, h, put, section, table, visible } from "../dom.js";
import { count, counted, number, timeOfInput } from "../format.js";

export const refresh = 3000;

export function mount(root, context, data) {
  const path = `/groups/${encodeURIComponent(data.group)}`, isShare = data.type === "share";
  const facts = h("p", { class: "soft" }), total = h("p", {});
  const lag = timeChart({ label: `Lag of ${data.group}`, series: [{ key: `group:${data.group}`, name: "lag" }], format: number, height: 64 });
  const place = (each) => [h("td", {}, h("a", { class: "row name", href: `/topics/${encodeURIComponent(each.topic)}` }, each.topic)), h("td", { class: "number" }, each.partition)];
  const cells = (each, names) => [...place(each), names.map((name) => h("td", { class: "number" }, count(each[name]))),
    h("td", {}, isShare ? Object.entries(each.deliveries).map(([times, records]) => `${count(records)} × ${times}`).join(", ") || "–" : visible(each.client_id ?? "–"))];
  const names = isShare ? ["start_offset", "end_offset", "lag", "in_flight"] : ["offset", "high_watermark", "lag"];
  const partitions = table({ caption: "Partitions", keyOf: (each) => `${each.topic} ${each.partition}`, empty: "It has no offsets.",
    columns: ["Topic", "Partition", ...(isShare ? ["From", "Up to", "Lag", "In flight", "Deliveries"] : ["Offset", "End", "Lag", "Read by"])].map((label, i) => ({ label, className: i > 0 && i < names.length + 2 ? "number" : "" })),
    row: () => h("tr"), update: (node, each) => redraw(node, each, cells(each, names)) });
  const members = table({ caption: "Members", keyOf: (each) => each.member_id, empty: "It has no members.",
    columns: ["Member", "Client", "Host", "Reads"].map((label) => ({ label })),
    row: () => h("tr"), update: (node, each) => redraw(node, each, [h("td", { class: "name" }, visible(each.group_instance_id ?? each.member_id)), h("td", {}, visible(each.client_id)), h("td", {}, visible(each.client_host)),
      h("td", {}, Object.entries(each.assignment).map(([topic, numbers]) => `${topic} (${numbers.join(", ")})`).join(", ") || "–")]) });
  const changes = data.can_change && h("div", { class: "actions" }, h("button", { onclick: reset }, "Reset"),
    h("button", { onclick: () => askFirst({ title: `Delete ${data.group}`, text: "This deletes its committed offsets.", typed: data.group, button: "Delete", act: async () => { await send("DELETE", path, { confirm: data.group }); context.navigate("/groups"); } }) }, "Delete"));
  root.append(h("div", { class: "title" }, h("p", { class: "crumbs" }, h("a", { href: "/groups" }, "Groups"), " /"), h("h1", { class: "name", tabindex: -1, "data-focus": true }, visible(data.group)), facts, changes),
    h("section", { class: "panel", "aria-label": "Lag" }, total, lag.node), section("Partitions", { className: "panel" }, partitions.node), section("Members", { className: "panel" }, members.node));
  show(data);

  function redraw(node, each, drawn) {
    const said = JSON.stringify(each);
    if (node.said_ === said) return;
    node.said_ = said;
    fill(node, drawn);
  }

  function show(told) {
    put(facts, [told.type, told.state, told.protocol, counted(told.members.length, "member")].filter(Boolean).join(" · "));
    const { partitions: bare, records } = told.uncommitted;
    fill(total, h("strong", {}, count(told.lag)), h("span", { class: "soft" }, " records behind, the last 15 minutes", bare ? `; ${counted(bare, "partition")} without a commit: ${counted(records, "record")} more` : ""));
    lag.set(told.history);
    lag.node.hidden = !told.history.series[`group:${told.group}`];
    partitions.set(isShare ? told.shared : told.partitions);
    members.set(told.members);
  }

  function reset() {
    const topics = [...new Set((isShare ? data.shared : data.partitions).map((each) => each.topic))];
    let planned = null, asked = 0;
    const topic = choose("Topic", [["", "all its topics"], ...topics.map((each) => [each, each])], "", preview);
    const to = choose("Goes on", [["at", "at a time"], ["earliest", "at the beginning"], ["latest", "at the end"]], "at", preview);
    const at = h("input", { type: "datetime-local", step: "0.001", "aria-label": "Time", onchange: preview });
    const said = h("p", { role: "status" }, "Choose the new position.");
    const list = table({ caption: "What would change", keyOf: (each) => `${each.topic} ${each.partition}`, empty: "",
      columns: ["Topic", "Partition", "Now at", "Goes to", "Read again", "Skipped"].map((label, i) => ({ label, className: i ? "number" : "" })),
      row: (each) => h("tr", {}, h("td", { class: "name" }, each.topic), ["partition", "current", "offset", "again", "skipped"].map((name) => h("td", { class: "number" }, count(each[name])))) });
    async function preview() {
      const mine = ++asked;
      planned = null;
      at.hidden = to.value !== "at";
      if (to.value === "at" && !at.value) return;
      const query = new URLSearchParams(to.value === "at" ? { at: timeOfInput(at.value) } : { to: to.value });
      if (topic.value) query.set("topic", topic.value);
      try {
        const told = await get(`${path}/reset?${query}`);
        if (mine !== asked) return;
        planned = told.moves;
        list.set([]);
        list.set(planned);
        put(said, `${counted(told.again, "record")} will be read again, ${count(told.skipped)} skipped.`);
      } catch (error) {
        if (mine === asked) put(said, error.message);
      }
    }
    askFirst({ title: `Reset ${data.group}`, button: "Reset", children: [h("p", { class: "split" }, topic, to, at), said, list.node],
      async act() {
        if (!planned?.length) throw new Error("There is nothing to reset yet.");
        await send("POST", `${path}/reset`, { offsets: planned.map(({ topic: name, partition, offset }) => ({ topic: name, partition, offset })) });
        context.refresh();
      } });
  }
  return { update: show };
}
