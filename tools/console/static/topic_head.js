// The head of every page of a topic: where one is, and the other pages of it.

import { h } from "./dom.js";

const PAGES = [["", "Segments"], ["/records", "Records"], ["/walk", "Time walk"]];

/** `here`: the page's part of the path. Children stand beside the name. */
export function topicHead(topic, here, ...children) {
  const base = `/topics/${encodeURIComponent(topic)}`;
  return h("div", { class: "title" }, h("p", { class: "crumbs" }, h("a", { href: "/topics" }, "Topics"), " /"),
    h("h1", { class: "name", tabindex: -1, "data-focus": true, "data-title": `${topic}${here ? ` · ${PAGES.find(([part]) => part === here)[1]}` : ""}` }, topic),
    children,
    h("nav", { class: "tabs", "aria-label": "Pages of this topic" }, PAGES.map(([part, name]) =>
      h("a", { href: base + part, "aria-current": part === here ? "page" : null }, name))));
}
