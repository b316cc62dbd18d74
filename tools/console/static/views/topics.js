// The list of topics: filter, sort, pages. Each state has a URL.

import { drawSparkline, sparkline } from "../charts.js";
import { fill, h, mark, put, table } from "../dom.js";
import { count, counted, number, perSecond, size } from "../format.js";

export const refresh = 5000;
const TYPING_MS = 120;

const COLUMNS = [
  { key: "name", label: "Topic", first: "asc" },
  { key: "partitions", label: "Partitions", className: "number wide" },
  { key: "records", label: "Records", className: "number" },
  { key: "size", label: "Size", className: "number" },
  { key: "in", label: "In", className: "number" },
  { key: null, label: "15 minutes", className: "wide" },
  { key: "out", label: "Out", className: "number wide" },
];

export function mount(root, context, data) {
  const summary = h("p", { class: "soft" });
  const filter = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter topics by a part of the name", value: data.q, spellcheck: "false", autocomplete: "off" });
  const internal = h("input", { type: "checkbox" });
  internal.checked = data.with_internal;
  const list = table({ caption: "Topics", columns: COLUMNS, keyOf: (row) => row.name, row: create, update, empty: "No topic has such a name.", className: "rows" });
  const pages = h("nav", { class: "pages", "aria-label": "Pages of the list" });
  let history = data.history, largest = 1;

  const address = (changes) => {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "" || value === false) query.delete(name);
      else query.set(name, value === true ? "1" : value);
    }
    const text = query.toString();
    return `/topics${text ? `?${text}` : ""}`;
  };

  COLUMNS.forEach((column, i) => {
    if (!column.key) return;
    fill(list.heads[i], h("button", { class: "sort", onclick() {
      const isDescending = current.sort === column.key ? current.order === "asc" : column.first !== "asc";
      context.navigate(address({ sort: column.key, order: isDescending ? "desc" : "asc", page: null }), { replace: true });
    } }, column.label));
  });

  let timer = 0, current = data;
  filter.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => context.navigate(address({ q: filter.value, page: null }), { replace: true }), TYPING_MS);
  });
  filter.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === "ArrowDown") {
      event.preventDefault();
      list.body.querySelector("a.row")?.focus();
    }
  });
  internal.addEventListener("change", () => context.navigate(address({ internal: internal.checked, page: null }), { replace: true }));

  root.append(h("div", { class: "title" }, h("h1", { tabindex: -1, "data-focus": true }, "Topics"), summary,
    h("div", { class: "actions" }, filter, h("label", { class: "check" }, internal, "internal"))), list.node, pages);
  show(data);

  function create(row) {
    const cells = {
      name: h("td", {}, h("a", { class: "row name", href: `/topics/${encodeURIComponent(row.name)}` }, row.name), h("span", { class: "tags" })),
      partitions: h("td", { class: "number wide" }), records: h("td", { class: "number" }), size: h("td", { class: "number" }),
      in: h("td", { class: "number" }), spark: h("td", { class: "wide" }, sparkline([])), out: h("td", { class: "number wide" }),
    };
    const node = h("tr", {}, Object.values(cells));
    node.cells_ = cells;
    return node;
  }

  function update(node, row) {
    const cells = node.cells_;
    const tags = [row.is_compacted && "compacted", row.offline && `${row.offline} offline`, row.waiting && `${row.waiting} waiting for space`].filter(Boolean);
    const said = tags.join(" ");
    if (node.said_ !== said) {
      node.said_ = said;
      fill(cells.name.lastChild, tags.map((tag) => h("span", { class: tag === "compacted" ? "tag" : "tag bad" }, tag)));
    }
    put(cells.partitions, count(row.partitions));
    put(cells.records, number(Number(row.records)));
    mark(cells.records, "title", counted(row.records, "record"));
    put(cells.size, size(row.size_bytes));
    put(cells.in, row.in ? perSecond(row.in) : row.in === 0 ? "·" : "–");
    put(cells.out, row.out ? perSecond(row.out) : row.out === 0 ? "·" : "–");
    drawSparkline(cells.spark.firstChild, history.series[`topic:${row.name}`]);
  }

  function show(told) {
    current = told;
    history = told.history;
    largest = Math.max(1, ...told.topics.map((row) => row.size_bytes));
    const hidden = told.with_internal ? "" : told.internal ? `, ${counted(told.internal, "internal one")} not shown` : "";
    const of = told.q ? `${count(told.found)} of ${count(told.total)}` : counted(told.found, "topic");
    put(summary, `${of}, ${counted(told.records, "record")}, ${size(told.size_bytes)}${hidden}`);
    list.set(told.topics);
    COLUMNS.forEach((column, i) => mark(list.heads[i], "aria-sort",
      column.key === told.sort ? (told.order === "asc" ? "ascending" : "descending") : null));
    drawPages(told);
  }

  function drawPages({ page, pages: last, page_size, found }) {
    if (last <= 1) return fill(pages);
    const to = (number, text, rel) => number >= 1 && number <= last
      ? h("a", { href: address({ page: number > 1 ? number : null }), rel }, text) : h("span", { class: "soft", "aria-disabled": "true" }, text);
    fill(pages, to(page - 1, "← Before", "prev"), h("span", {}, `${count((page - 1) * page_size + 1)}–${count(Math.min(found, page * page_size))} of ${count(found)}`), to(page + 1, "Next →", "next"));
  }

  return { update: show };
}
