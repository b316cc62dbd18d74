// The records of a topic: pages from a time, an offset or the end, each record in full, a search, the live tail, one written by hand.
// Whatever records hold is put in as text, cut by the server.

import { get, stream } from "../api.js";
import { choose, fill, h, mark, put, table, visible } from "../dom.js";
import { count, counted, exactTime, number, size, timeInput, timeOfInput } from "../format.js";
import { produceDialog } from "../produce_dialog.js";
import { topicHead } from "../topic_head.js";

const MOST_ROWS = 300;
const KINDS = [["auto", "as guessed"], ["json", "JSON"], ["text", "text"], ["msgpack", "MessagePack"], ["hex", "hex"]];
const PLACES = [["any", "anywhere"], ["key", "in the key"], ["whole-key", "as the key"], ["value", "in the value"], ["headers", "in headers"]];

function streamQuery(asked, names) {
  const query = new URLSearchParams();
  for (const name of ["partition", "isolation", "as", "q", "in", "nocase", ...names]) if (asked.get(name)) query.set(name, asked.get(name));
  return query;
}

export function mount(root, context, data) {
  const base = `/topics/${encodeURIComponent(data.topic)}/records`, api = `/topics/${encodeURIComponent(data.topic)}`;
  let current = data, stop = null, mode = "page", streamed = "";

  const query = () => new URLSearchParams(location.search);
  const address = (changes) => {
    const asked = query();
    for (const [name, value] of Object.entries(changes)) value === null || value === "" || value === false ? asked.delete(name) : asked.set(name, value === true ? "1" : value);
    const text = asked.toString();
    return base + (text ? `?${text}` : "");
  };
  const go = (changes) => context.navigate(address(changes), { replace: true });
  const PLACE = { offset: null, at: null, from: null, until: null };

  // ---- what is asked for ---------------------------------------------------------------------------------------------------
  const partition = choose("Partition", [], "", (value) => go({ ...PLACE, at: query().get("at"), partition: value }));
  const start = choose("Begin", [["newest", "newest"], ["at", "from a time"], ["offset", "from an offset"]], "newest", begin);
  const at = h("input", { type: "datetime-local", step: "0.001", "aria-label": "Time", onchange: () => at.value && go({ ...PLACE, at: timeOfInput(at.value) }) });
  const offset = h("input", { inputmode: "numeric", pattern: "[0-9]{1,19}", size: 12, "aria-label": "Offset",
    onchange: () => offset.validity.valid && offset.value && go({ ...PLACE, offset: offset.value, partition: partition.value || "0" }) });
  const kind = choose("Values", KINDS, data.as, (value) => go({ as: value === "auto" ? null : value }));
  const committed = h("input", { type: "checkbox", onchange: () => go({ isolation: committed.checked && "read_committed" }) });
  const words = h("input", { type: "search", placeholder: "Search", "aria-label": "Search for", maxlength: 1000, spellcheck: "false", autocomplete: "off" });
  const where = choose("Where to search", PLACES, "any");
  const nocase = h("input", { type: "checkbox" }), backwards = h("input", { type: "checkbox" });
  const to = h("input", { type: "datetime-local", step: "0.001", "aria-label": "Until before", onchange: () => words.value || !query().has("at") || go({ to: to.value && timeOfInput(to.value), from: null }) });
  const live = h("button", { onclick: () => go(mode === "live" ? { live: null } : { ...PLACE, live: true, to: null }) }, "Live");
  const searching = h("form", { class: "asking", role: "search", onsubmit(event) {
    event.preventDefault();
    streamed = "";
    go({ q: words.value, in: where.value === "any" ? null : where.value, nocase: nocase.checked, order: backwards.checked && "newest", to: to.value && timeOfInput(to.value), until: null });
  } }, words, where, h("label", { class: "check" }, nocase, "any case"), h("label", { class: "check" }, backwards, "newest first"), h("label", { class: "check" }, h("span", {}, "until"), to), h("button", {}, "Search"));

  function begin(value) {
    at.hidden = value !== "at";
    offset.hidden = value !== "offset";
    if (value === "newest") go({ ...PLACE, to: null });
    else (value === "at" ? at : offset).focus();
  }

  // ---- what is shown -------------------------------------------------------------------------------------------------------
  const said = h("p", { class: "said", role: "status" });
  const pause = h("button", { hidden: true });
  const progress = h("progress", { max: 1, "aria-label": "How far the search is", hidden: true });
  const list = table({ caption: "Records", className: "rows records", keyOf: (each) => `${each.partition}:${each.offset}`, row: rowOf, empty: "There are no records here.",
    columns: [{ label: "Time" }, { label: "Partition", className: "number wide" }, { label: "Offset", className: "number" }, { label: "Key" }, { label: "Value" }, { label: "Size", className: "number wide" }] });
  const pane = h("aside", { class: "panel pane", "aria-label": "One record", hidden: true, onkeydown: (event) => event.key === "Escape" && opened?.close.click() });
  let opened = null;
  const pages = h("nav", { class: "pages", "aria-label": "Pages of the list" });
  root.append(topicHead(data.topic, "/records", h("div", { class: "actions" },
    data.can_produce && h("button", { onclick: () => produceDialog(data.topic, current.partitions.length, (told) => context.navigate(`${base}?partition=${told.partition}&offset=${told.offset}`)) }, "Write a record"), live)),
  h("div", { class: "panel controls" }, h("div", { class: "asking" }, partition, start, at, offset, kind, h("label", { class: "check" }, committed, "committed only")), searching),
  h("div", { class: "split status" }, said, progress, pause), h("div", { class: "beside" }, list.node, pane), pages);
  show(data);

  function show(told) {
    current = told;
    const asked = query();
    fill(partition, told.partitions.length > 1 && h("option", { value: "" }, "all partitions"),
      told.partitions.map((each) => h("option", { value: each.partition, disabled: each.error !== null }, `partition ${each.partition}`)));
    partition.value = told.partition ?? "";
    const place = asked.has("at") ? "at" : asked.has("offset") ? "offset" : "newest";
    start.value = place;
    at.hidden = place !== "at";
    offset.hidden = place !== "offset";
    if (place === "at") at.value = timeInput(asked.get("at"));
    if (place === "offset") offset.value = asked.get("offset");
    kind.value = told.as;
    committed.checked = told.isolation === "read_committed";
    words.value = asked.get("q") ?? "";
    where.value = asked.get("in") ?? "any";
    nocase.checked = asked.has("nocase");
    backwards.checked = asked.get("order") === "newest";
    to.value = asked.has("to") ? timeInput(asked.get("to")) : "";
    const wanted = asked.has("live") ? "live" : asked.get("q") ? "search" : "page";
    if (wanted === mode && mode !== "page" && streamed === location.search) return;
    stop?.();
    stop = null;
    mode = wanted;
    streamed = location.search;
    mark(live, "aria-pressed", String(mode === "live"));
    progress.hidden = pause.hidden = true;
    pages.hidden = mode !== "page";
    if (mode === "page") showPage(told);
    else (mode === "live" ? follow : search)(asked);
  }

  function showPage(told) {
    list.set(told.records);
    const first = told.records[0];
    put(said, first ? `${counted(told.records.length, "record")}, ${told.is_newest_first ? "newest first" : `from ${exactTime(first.timestamp)} on`}` : "");
    // The pages of a range are asked for with its ends.
    const of = query().has("to") ? {} : PLACE;
    const link = (name, cursor, text, rel) => cursor ? h("a", { href: address({ ...of, [name]: cursor }), rel }, text) : h("span", { class: "soft" }, text);
    const older = link("until", told.older, "Older", "next"), newer = link("from", told.newer, "Newer", "prev");
    fill(pages, told.is_newest_first ? [newer, older] : [older, newer], h("a", { href: address({ ...PLACE, to: null }) }, "Newest"));
  }

  function follow(asked) {
    let places = null, rows = [], passed = 0, came = 0, isPaused = false, end = null;
    const url = () => {
      const query = streamQuery(asked, []);
      if (places) query.set("from", Object.entries(places).map((each) => each.join(":")).join(","));
      return `${api}/tail?${query}`;
    };
    const tell = () => put(said, `${isPaused ? "Paused." : "Live."} ${counted(came, "record")} came${passed ? `, ${count(passed)} of them too fast to be shown` : ""}.`);
    const open = () => {
      end = stream(url, {
        records(told) {
          places = told.places;
          came += told.records.length + told.passed;
          passed += told.passed;
          rows = [...told.records.reverse(), ...rows].slice(0, MOST_ROWS);
          if (told.records.length) list.set(rows);
          tell();
        },
      }, { state: (how, error) => how === "lost" && put(said, `The tail is interrupted${error ? `: ${error.message.replace(/\.$/, "")}` : ""}. It is tried again.`) });
    };
    pause.hidden = false;
    put(pause, "Pause");
    pause.onclick = () => {
      isPaused = !isPaused;
      if (isPaused) end();
      else open();
      put(pause, isPaused ? "Go on" : "Pause");
      tell();
    };
    list.set([]);
    open();
    tell();
    stop = () => end();
  }

  function search(asked) {
    const rows = [];
    let timer = 0;
    const isOver = () => {
      end();
      progress.hidden = pause.hidden = true;
      list.set(rows);
    };
    const tell = (told, how) => {
      progress.value = told.share;
      put(said, `${how}: ${counted(told.found, "match", "matches")} in ${number(told.records)} records, ${size(told.bytes)}.`);
    };
    list.set(rows);
    put(said, "Searching …");
    progress.hidden = pause.hidden = false;
    progress.value = 0;
    put(pause, "Stop");
    const end = stream(`${api}/search?${streamQuery(asked, ["offset", "at", "to", "from", "order"])}`, {
      match(record) {
        rows.push(record);
        timer ||= setTimeout(() => { timer = 0; list.set(rows); }, 100);
      },
      progress: (told) => tell(told, "Searching"),
      done(told) { tell(told, told.reason === "limit" ? "Ended at its limit" : "Searched to the end"); isOver(); },
    }, { pauses: false, again: false, state(how, error) { if (how === "lost") { put(said, error?.message ?? "The search was interrupted."); isOver(); } } });
    pause.onclick = () => { put(said, `Stopped. ${said.textContent}`); isOver(); };
    stop = () => { clearTimeout(timer); end(); };
  }

  // ---- one record ----------------------------------------------------------------------------------------------------------
  function rowOf(record) {
    const link = h("a", { class: "row", href: `${base}?partition=${record.partition}&offset=${record.offset}`, "aria-expanded": "false", onclick(event) {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      if (opened?.link === link) close();
      else open(record, link);
    } }, exactTime(record.timestamp));
    return h("tr", {}, h("td", { class: "when" }, link), h("td", { class: "number wide" }, record.partition), h("td", { class: "number" }, count(record.offset)),
      h("td", { class: "cell key-cell" }, shown(record.key)), h("td", { class: "cell" }, shown(record.value)), h("td", { class: "number wide" }, record.value ? size(record.value.size) : "–"));
  }

  function open(record, link) {
    const path = `${api}/records/${record.partition}/${record.offset}`, body = h("div", { class: "stack" }, "…");
    const load = async (as) => {
      try {
        const told = (await get(`${path}?as=${as}`, { signal: context.signal })).record;
        fill(body, part("Key", told.key, `/api${path}/key`), part("Value", told.value, `/api${path}/value`), told.header_count > 0 && headers(told));
      } catch (error) {
        if (error.name !== "AbortError") fill(body, h("p", { class: "bad" }, error.message));
      }
    };
    close();
    opened = { link, close: h("button", { class: "plain", onclick: () => { close(); link.focus(); } }, "Close") };
    mark(link, "aria-expanded", "true");
    fill(pane, h("div", { class: "split" }, h("h2", {}, `Partition ${record.partition}, offset ${count(record.offset)}`), opened.close),
      h("p", { class: "split soft" }, exactTime(record.timestamp), record.timestamp >= 0 && h("a", { href: `${api}/walk?partition=${record.partition}&at=${record.timestamp}` }, "Walk to this time"),
        choose("Show it", KINDS, current.as, load)), body);
    pane.hidden = false;
    load(current.as);
  }

  function close() {
    if (opened) mark(opened.link, "aria-expanded", "false");
    opened = null;
    pane.hidden = true;
  }

  return { update: show, leave: () => stop?.() };
}

function shown(told) {
  if (!told) return h("span", { class: "soft" }, "null");
  return [visible(told.text) || h("span", { class: "soft" }, "empty"), told.is_cut && "…"];
}

function part(name, told, file) {
  if (!told) return h("p", { class: "soft" }, `${name}: null`);
  const facts = [told.kind, size(told.size), told.is_cut && "cut here", told.note].filter(Boolean).join(", ");
  return h("section", { "aria-label": name }, h("p", { class: "split" }, h("strong", {}, name), h("span", { class: "soft" }, facts, " ", h("a", { href: file, download: "" }, "as a file"))),
    h("pre", { tabindex: 0 }, visible(told.text)));
}

function headers(told) {
  const more = told.header_count - told.headers.length;
  return h("section", { "aria-label": "Headers" }, h("p", {}, h("strong", {}, "Headers")), h("dl", { class: "pairs" }, told.headers.map(([name, value]) => [h("dt", {}, visible(name)), h("dd", {}, shown(value))])),
    more > 0 && h("p", { class: "soft" }, `and ${count(more)} more`));
}
