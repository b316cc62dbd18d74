// The list of groups of every kind.

import { drawSparkline, sparkline } from "../charts.js";
import { h, mark, put, table, visible } from "../dom.js";
import { count, counted } from "../format.js";

export const refresh = 5000;

export function mount(root, context, data) {
  const facts = h("p", { class: "soft" });
  let timer = 0, history = data.history;
  const filter = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter groups by a part of the name", value: data.q, spellcheck: "false", autocomplete: "off", oninput() {
    clearTimeout(timer);
    timer = setTimeout(() => context.navigate(`/groups${filter.value ? `?q=${encodeURIComponent(filter.value)}` : ""}`, { replace: true }), 120);
  } });
  const list = table({ caption: "Groups", className: "rows", keyOf: (each) => each.group, empty: "No such group.",
    columns: [{ label: "Group" }, { label: "Kind" }, { label: "State" }, { label: "Members", className: "number" }, { label: "Lag", className: "number" }, { label: "15 minutes", className: "wide" }],
    row: (each) => h("tr", {}, h("td", {}, h("a", { class: "row name", href: `/groups/${encodeURIComponent(each.group)}` }, visible(each.group))),
      h("td"), h("td"), h("td", { class: "number" }), h("td", { class: "number" }), h("td", { class: "wide" }, sparkline([]))),
    update(node, each) {
      const [, kind, state, members, lag, spark] = node.children;
      put(kind, each.type);
      put(state, each.error ?? each.state);
      mark(state, "class", each.error ? "bad" : null);
      put(members, count(each.member_count));
      put(lag, count(each.lag));
      drawSparkline(spark.firstChild, history.series[`group:${each.group}`]);
    } });
  root.append(h("div", { class: "title" }, h("h1", { tabindex: -1, "data-focus": true }, "Groups"), facts, h("div", { class: "actions" }, filter)), list.node);
  show(data);

  function show(told) {
    history = told.history;
    put(facts, told.found > told.groups.length ? `${told.groups.length} of ${counted(told.found, "group")} are shown` : counted(told.total, "group"));
    list.set(told.groups);
  }
  return { update: show, leave: () => clearTimeout(timer) };
}
