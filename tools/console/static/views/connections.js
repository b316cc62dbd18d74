// Who is connected, with what, and the limits that there are.

import { h, put, section, table, visible } from "../dom.js";
import { age, count, counted, number, perSecond } from "../format.js";

export const refresh = 2000;

/** A cell with a line, and a softer one below it. */
const two = (className, title) => h("td", { class: className || null, title }, h("div"), h("div", { class: "soft below" }));

export function mount(root, context, data) {
  const facts = h("p", { class: "soft" }), refused = h("p", { class: "soft" });
  const list = table({ caption: "Connections", keyOf: (each) => `${each.listener} ${each.peer}`,
    columns: [["Peer"], ["Client"], ["User"], ["For", "number"], ["Requests/s", "number"], ["In", "number"], ["Out", "number"]].map(([label, className]) => ({ label, className })),
    row: (each) => h("tr", {}, two("", each.listener), two(), two(), h("td", { class: "number" }), two("number"), h("td", { class: "number" }), h("td", { class: "number" })),
    update(node, each) {
      const said = [[visible(each.peer ?? "–"), each.protocol], [visible(each.client_id ?? "–"), visible([each.software_name, each.software_version].filter(Boolean).join(" "))],
        [visible(each.user ?? "–"), [each.is_encrypted && "TLS", each.is_throttled && "throttled"].filter(Boolean).join(", ")], [age((now - Number(each.since_timestamp)) / 1000)],
        [number(each.requests_per_second), each.requests_in_flight > 0 && `${count(each.requests_in_flight)} under way`], [perSecond(each.received_bytes_per_second)], [perSecond(each.sent_bytes_per_second)]];
      said.forEach((texts, i) => (texts.length > 1 ? texts.forEach((text, j) => put(node.children[i].children[j], text || "")) : put(node.children[i], texts[0])));
    } });
  const quotas = table({ caption: "Quotas", keyOf: (each) => JSON.stringify(each), empty: "Nobody is limited.", columns: [{ label: "Who" }, { label: "Limits" }],
    row: (each) => h("tr", {}, h("td", {}, Object.entries(each.entity).map(([kind, name]) => `${kind} ${visible(name ?? "default")}`).join(", ")),
      h("td", {}, Object.entries(each.values).map(([key, value]) => `${key} ${key.endsWith("_byte_rate") ? perSecond(value) : number(value)}`).join(", "))) });
  let now = data.now_ms;
  root.append(h("div", { class: "title" }, h("h1", { tabindex: -1, "data-focus": true }, "Connections"), facts), list.node, section("Quotas", { className: "panel" }, refused, quotas.node));
  show(data);

  function show(told) {
    now = told.now_ms;
    put(facts, counted(told.connections.length + told.left_out, "connection") + (told.left_out ? `, ${count(told.left_out)} of them not shown` : ""));
    put(refused, told.quotas_refused ?? "");
    list.set(told.connections);
    quotas.set(told.quotas);
    quotas.node.hidden = told.quotas_refused !== null;
  }
  return { update: show };
}
