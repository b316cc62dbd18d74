// Who is connected, with what, and the limits that there are.

import { h, put, section, table, visible } from "../dom.js";
import { age, count, counted, number, perSecond } from "../format.js";

export const refresh = 2000;

export function mount(root, context, data) {
  const facts = h("p", { class: "soft" }), refused = h("p", { class: "soft" });
  const list = table({ caption: "Connections", keyOf: (each) => `${each.listener} ${each.peer}`,
    columns: [["Peer"], ["Protocol"], ["Client"], ["Software", "wide"], ["User"], ["For", "number"], ["Requests/s", "number"], ["In", "number"], ["Out", "number"], ["Notes"]].map(([label, className]) => ({ label, className })),
    row: (each) => h("tr", {}, h("td", { class: "name" }, visible(each.peer ?? "–")), h("td", { title: each.listener }, each.protocol), ...Array.from({ length: 8 }, (_, i) => h("td", { class: i === 1 ? "wide" : i > 2 && i < 7 ? "number" : "" }))),
    update(node, each) {
      const said = [visible(each.client_id ?? "–"), visible([each.software_name, each.software_version].filter(Boolean).join(" ") || "–"), visible(each.user ?? "–"),
        age((now - Number(each.since_timestamp)) / 1000), number(each.requests_per_second), perSecond(each.received_bytes_per_second), perSecond(each.sent_bytes_per_second),
        [each.requests_in_flight > 0 && `${count(each.requests_in_flight)} under way`, each.is_encrypted && "TLS", each.is_throttled && "throttled"].filter(Boolean).join(", ")];
      said.forEach((text, i) => put(node.children[i + 2], text));
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
