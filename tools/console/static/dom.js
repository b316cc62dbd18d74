// Elements, made without ever reading markup: whatever records hold is text, and stays text.

const SVG = "http://www.w3.org/2000/svg";

/** An element. Properties that begin with "on" are listeners, `class` and `data-`/`aria-` are attributes; children are nodes or text. */
export function h(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** The same in SVG. */
export function s(tag, props = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  append(node, children);
  return node;
}

export function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

// Characters that show nothing, or turn the text around them.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** A text of a record, with signs for what could not be seen. */
export function visible(text) {
  return text.replace(HIDDEN, (char) => {
    return `⟨${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}⟩`;
  });
}

/** A choice: options are [value, text]. */
export function choose(label, options, value, onchange) {
  const node = h("select", { "aria-label": label, onchange: () => onchange?.(node.value) },
    options.map(([each, text]) => h("option", { value: each }, text)));
  node.value = value;
  return node;
}

/** Put children in place of what a node has. */
export function fill(node, ...children) {
  node.replaceChildren();
  return append(node, children);
}

/** Set a text, only if it is another one: what did not change is not read out again. */
export function put(node, text) {
  const value = String(text);
  if (node.textContent !== value) node.textContent = value;
  return node;
}

/** Set or remove an attribute, only if it changes. */
export function mark(node, name, value) {
  if (value === undefined || value === null || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value === true ? "" : value);
  return node;
}

/** Make a parent's children fit a list: those of the same key stay, so that focus and selection do. */
export function keyed(parent, items, keyOf, create, update) {
  const before = parent._keyed ?? new Map();
  const after = new Map();
  let place = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    const node = before.get(key) ?? create(item);
    before.delete(key);
    after.set(key, node);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
    update?.(node, item);
  }
  for (const node of before.values()) node.remove();
  parent._keyed = after;
}

// What is wider than its place can be scrolled by keys, too.
const scrolled = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const box = target.closest(".table");
    mark(box, "tabindex", box.scrollWidth > box.clientWidth ? 0 : null);
  }
});

/** A table: columns are {key, label, sort, className, hint}. Rows are made by `row`, and brought up to date by `update`. */
export function table({ caption, columns, row, update, keyOf, empty = "Nothing here.", className = "" }) {
  const body = h("tbody");
  const heads = columns.map((column) => h("th", { scope: "col", class: column.className, title: column.hint }, column.label));
  const nothing = h("p", { class: "empty", hidden: true }, empty);
  const node = h("div", { class: `table ${className}` },
    h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, heads)), body), nothing);
  scrolled.observe(node);
  scrolled.observe(node.firstChild);
  return {
    node, heads, body,
    set(items) {
      keyed(body, items, keyOf, row, update);
      nothing.hidden = items.length > 0;
    },
  };
}

/** A heading with what belongs to it. */
export function section(title, { className = "", note, level = 2 } = {}, ...children) {
  const id = `h-${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
  return h("section", { class: className, "aria-labelledby": id },
    h("div", { class: "head" }, h(`h${level}`, { id }, title), note), children);
}
