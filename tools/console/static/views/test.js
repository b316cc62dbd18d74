// A server for tests worked by hand: requests with the faults that they met, rules, clock, nodes, life.

import { send } from "../api.js";
import { onWidth } from "../charts.js";
import { h, keyed, mark, put, s, section, table } from "../dom.js";
import { age, clock, counted, size, time } from "../format.js";

export const refresh = 1000;
const APIS = "Produce Fetch Metadata ListOffsets FindCoordinator JoinGroup SyncGroup Heartbeat ConsumerGroupHeartbeat OffsetCommit OffsetFetch InitProducerId AddPartitionsToTxn EndTxn ShareFetch CreateTopics".split(" ");
const ERRORS = "NOT_LEADER_OR_FOLLOWER REQUEST_TIMED_OUT COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR UNKNOWN_TOPIC_OR_PARTITION INVALID_RECORD TOPIC_AUTHORIZATION_FAILED REBALANCE_IN_PROGRESS".split(" ");
const EFFECTS = ["error", "delay_ms", "hold", "disconnect", "black_hole", "corrupt", "truncate_to", "throttle_ms"];
const WITH_NUMBER = ["delay_ms", "truncate_to", "throttle_ms"];
const OWN = ["number", "matched", "fired", "is_released"];
const LANE = 20, LABEL = 164, ROWS = 12, DAYS = 30 * 86400;

export function mount(root, context, data) {
  const may = context.console.allow_changes;
  const summary = h("p", { class: "soft" }), problem = h("p", { class: "bad", role: "alert" });
  const timeline = drawing(), now = h("strong", {}), nodes = h("ul", { class: "plain" });

  async function act(method, path, body) {
    put(problem, "");
    try {
      await send(method, `/test${path}`, body);
      context.announce("Done");
      await context.refresh();
      return true;
    } catch (error) {
      put(problem, error.message);
      return false;
    }
  }
  const button = (text, ...what) => may && h("button", { type: "button", onclick: () => act(...what) }, text);

  const requests = table({
    caption: "The last requests", keyOf: (each) => each.number, empty: "No request from a Kafka client yet.",
    columns: [{ label: "#", className: "number" }, { label: "Time" }, { label: "Request" }, { label: "Client" }, { label: "About" }, { label: "End" }],
    row: (each) => h("tr", {}, h("td", { class: "number" }, each.number), h("td", {}, clock(each.at_ms)), h("td", {}, `${each.api} v${each.version}`), h("td", { class: "name" }, each.client_id),
      h("td", { class: "name" }, each.about.slice(0, 4).join(", "), each.about.length > 4 && ` and ${each.about.length - 4} more`), h("td")),
    update: (node, each) => mark(put(node.lastChild, ending(each)), "class", each.fault !== null || each.errors.length ? "bad" : null),
  });
  const rules = (what, path) => table({
    caption: what, keyOf: (each) => each.number, empty: "None stands.",
    columns: [{ label: "#" }, { label: "Rule" }, { label: "Met", className: "number" }, { label: "Fired", className: "number" }, { label: h("span", { class: "unseen" }, "Changes") }],
    row: (each) => h("tr", {}, h("td", {}, each.number), h("td", { class: "name" }, ruleText(each)), h("td", { class: "number" }), h("td", { class: "number" }),
      h("td", { class: "number" }, (each.hold || each.effect === "delay") && button("Release", "POST", `${path}/${each.number}/release`), " ", button("Remove", "DELETE", `${path}/${each.number}`))),
    update: (node, each) => { put(node.children[2], each.matched); put(node.children[3], each.fired); },
  });
  const faults = rules("Rules of requests", "/faults"), diskFaults = rules("Rules of the device", "/disk-faults");

  root.append(h("div", { class: "title" }, h("h1", { tabindex: -1, "data-focus": true }, "Test"), summary), problem,
    section("Requests", { className: "panel", note: button("Forget them", "DELETE", "/requests") }, timeline.node, requests.node),
    section("Rules", { className: "panel", note: button("Remove all", "DELETE", "/faults") }, faults.node, may && addRule(act)),
    section("Device", { className: "panel", note: button("Remove all", "DELETE", "/disk-faults") }, diskFaults.node, may && addDiskRule(act)),
    h("div", { class: "columns even" },
      section("Clock", { className: "panel" }, h("p", {}, now), may && slider(act), h("p", { class: "row-of" }, button("Let it stand", "POST", "/clock/freeze"), button("Let it go on", "POST", "/clock/unfreeze"))),
      section("Nodes", { className: "panel" }, nodes)),
    may && section("Life", { className: "panel" }, life(act)));
  show(data);

  function show(told) {
    const { state } = told;
    put(summary, `${state.is_running ? "runs" : "is down"}, ${counted(state.starts, "start")}, Kafka clients at ${state.kafka ?? "no address"}`);
    timeline.set(told.requests);
    requests.set(told.requests.slice(-ROWS).reverse());
    faults.set(told.faults);
    diskFaults.set(told.disk_faults);
    put(now, time(told.clock.now_ms) + (told.clock.is_frozen ? ", stands" : ""));
    const each = state.nodes.length ? state.nodes : [{ node: null }];
    keyed(nodes, each, ({ node, is_up }) => `${node} ${is_up}`, ({ node, address, is_up }) => node === null ? h("li", { class: "soft" }, "One node; serve --nodes 3 has three.")
      : h("li", { class: "split" }, h("span", { class: is_up ? null : "bad" }, `${node} at ${address} ${is_up ? "is up" : "is down"}`), button(is_up ? `Node ${node} down` : `Node ${node} up`, "POST", `/nodes/${node}/${is_up ? "down" : "up"}`)));
  }

  return { update: show };
}

const ending = (each) => [each.fault !== null && `fault ${each.fault}`, ...each.errors, !each.is_answered ? "no answer" : !each.errors.length && each.fault === null && "ok"].filter(Boolean).join(", ");
const ruleText = (rule) => Object.entries(rule).filter(([name]) => !OWN.includes(name)).map(([name, value]) => (value === true ? name : `${name}=${value}`)).join(" ");

/** A lane for each API, a mark for each request in the order in which they came. */
function drawing() {
  const svg = s("svg", { role: "img", class: "requests" }), detail = h("p", { class: "detail" });
  let requests = [], width = 0;
  const draw = () => {
    const apis = [...new Set(requests.map((each) => each.api))].sort(), height = apis.length * LANE + 18, space = width - LABEL - 6;
    const x = (i) => LABEL + (space * (i + 0.5)) / Math.max(60, requests.length);
    mark(mark(mark(svg, "width", width), "height", height), "viewBox", `0 0 ${width} ${height}`);
    const bad = requests.filter((each) => each.fault !== null);
    mark(svg, "aria-label", `The last ${counted(requests.length, "request")}: ${bad.length} met a fault, ${requests.filter((each) => each.errors.length).length} ended with an error`);
    svg.replaceChildren(...apis.flatMap((api, i) => [s("text", { x: 0, y: i * LANE + 14 }, api), s("line", { x1: LABEL, x2: width, y1: i * LANE + 10, y2: i * LANE + 10 })]),
      ...requests.map((each, i) => {
        const y = apis.indexOf(each.api) * LANE + 10, how = each.fault !== null ? "fault" : each.errors.length ? "error" : each.is_answered ? "" : "open";
        const point = how === "fault" ? s("path", { d: `M${x(i)} ${y - 7}l6 12h-12z`, class: how }) : s("circle", { cx: x(i), cy: y, r: 3, class: how });
        point.addEventListener("pointerenter", () => put(detail, `#${each.number} ${clock(each.at_ms)} ${each.api} of ${each.client_id}, ${size(each.size_bytes)}: ${ending(each)}`));
        return point;
      }),
      ...[0, requests.length - 1].filter((i) => requests[i]).map((i) => s("text", { x: x(i), y: height - 2, "text-anchor": i ? "end" : "start" }, clock(requests[i].at_ms))));
  };
  const node = h("div", {}, svg, detail);
  onWidth(node, (wide) => { width = Math.max(320, Math.floor(wide)); draw(); });
  return { node, set(told) { requests = told; if (width) draw(); } };
}

const field = (label, props) => h("label", {}, label, h("input", { autocomplete: "off", spellcheck: "false", ...props }));
const choice = (label, name, values) => h("label", {}, label, h("select", { name }, values.map((value) => h("option", { value }, value))));
const list = (id, values) => h("datalist", { id }, values.map((value) => h("option", { value })));

function form(act, path, children, bodyOf, text = "Add") {
  const node = h("form", { class: "row-of", async onsubmit(event) {
    event.preventDefault();
    if (await act("POST", path, bodyOf(Object.fromEntries(new FormData(node))))) node.reset();
  } }, children, h("button", {}, text));
  return node;
}

function said(given, numbers) {
  const kept = Object.entries(given).filter(([, value]) => value !== "");
  return Object.fromEntries(kept.map(([name, value]) => [name, numbers.includes(name) ? Number(value) : value]));
}

const addRule = (act) => form(act, "/faults", [list("apis", APIS), list("errors", ERRORS), field("API", { name: "api", list: "apis", size: 14 }), field("Topic", { name: "topic", size: 10 }), field("Partition", { name: "partition", type: "number", min: 0 }),
  field("Group", { name: "group", size: 8 }), field("Client", { name: "client_id", size: 8 }), field("From the nth", { name: "nth", type: "number", min: 1 }), field("Times", { name: "times", type: "number", min: 1 }),
  choice("Effect", "effect", EFFECTS), field("Error, or number", { name: "value", list: "errors", size: 22 }), h("label", { class: "check" }, h("input", { type: "checkbox", name: "applied" }), "after its effect")],
({ effect, value, applied, ...rest }) => ({ ...said(rest, ["partition", "nth", "times"]), [effect]: WITH_NUMBER.includes(effect) ? Number(value) : effect === "error" ? value : true, ...(applied ? { applied: true } : {}) }));

const addDiskRule = (act) => form(act, "/disk-faults", [choice("Effect", "effect", ["full", "error", "delay", "torn"]), choice("Operation", "operation", ["", "write", "sync", "read"]), field("Path", { name: "path", size: 14 }),
  field("Delay in ms", { name: "delay_ms", type: "number", min: 0 }), field("Times", { name: "times", type: "number", min: 1 })], (given) => said(given, ["delay_ms", "times"]));

/** From a second to 30 days, evenly by their logarithm. */
function slider(act) {
  const range = h("input", { type: "range", min: 0, max: 100, value: 40, "aria-label": "How far the clock is moved" });
  const seconds = () => Math.round(DAYS ** (range.value / 100));
  const button = h("button", { type: "button", onclick: () => act("POST", "/clock/advance", { seconds: seconds() }) });
  const say = () => mark(range, "aria-valuetext", put(button, `Move it by ${age(seconds())}`).textContent);
  range.addEventListener("input", say);
  say();
  return h("p", { class: "row-of" }, range, button);
}

function life(act) {
  const typed = field("Type crash or reset: both take data away", { name: "confirm", required: true, pattern: "crash|reset" });
  return h("div", { class: "stack" }, h("p", { class: "row-of" }, ["Stop", "Restart"].map((text) => h("button", { type: "button", onclick: () => act("POST", `/${text.toLowerCase()}`) }, text))),
    h("form", { class: "row-of", async onsubmit(event) {
      event.preventDefault();
      const { value } = typed.lastChild;
      if (await act("POST", `/${value}`, { confirm: value })) typed.lastChild.value = "";
    } }, typed, h("button", {}, "Do it")),
    form(act, "/snapshot", [field("Fork: a copy of all data in the empty folder", { name: "path", required: true, placeholder: "/tmp/fork" })], (given) => given, "Copy"),
    h("p", { class: "soft" }, "triolog serve --data-dir FOLDER continues from a copy."));
}
