// The shell: which view a URL is, navigation, keyboard, theme, how the server is. Views are modules below views/.

import { ApiError, get, send, setCsrfToken, stream } from "./api.js";
import { fill, h, mark, put } from "./dom.js";
import { clock, setZone, zoneName } from "./format.js";

// A view: `mount(root, context, data)` draws it and answers {update(data), sample(sample), leave()}, each if it likes. `refresh`: after
// how many ms its data are asked for again. `needs`: what the console must have been started with.
const VIEWS = [
  { path: "/", title: "Overview", key: "o", module: "overview" },
  { path: "/topics", title: "Topics", key: "t", module: "topics" },
  { path: "/topics/{topic}", module: "topic", under: "/topics" },
  { path: "/topics/{topic}/records", module: "records", under: "/topics" },
  { path: "/topics/{topic}/walk", module: "walk", under: "/topics" },
  { path: "/groups", title: "Groups", key: "g", module: "groups" },
  { path: "/groups/{group}", module: "group", under: "/groups" },
  { path: "/transactions", title: "Transactions", key: "x", module: "transactions" },
  { path: "/connections", title: "Connections", key: "c", module: "connections" },
  { path: "/wear", title: "Wear", key: "w", module: "wear" },
  { path: "/forward", title: "Forward", key: "f", module: "forward", needs: "has_forward" },
  { path: "/test", title: "Test", key: "e", module: "test", needs: "has_control" },
];

const first = JSON.parse(document.getElementById("first").textContent);
const main = document.getElementById("main");
const state = { console: first.console, sample: null, isHeard: true, problem: null, view: null, shown: null, loading: null, timer: 0 };

// ---- where we are ------------------------------------------------------------------------------------------------------------

function found(path) {
  for (const view of VIEWS) {
    const names = [...view.path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]);
    const match = new RegExp(`^${view.path.replace(/\{\w+\}/g, "([^/]+)")}$`).exec(path);
    if (match) return { view, params: Object.fromEntries(names.map((name, i) => [name, decodeURIComponent(match[i + 1])])) };
  }
  return null;
}

/** Show a URL. `data`: its value, where it is there already. */
async function show(url, { data, error, isFirst = false, keepsFocus = false, scroll = 0 } = {}) {
  const target = new URL(url, location.href);
  const place = found(target.pathname);
  state.loading?.abort();
  clearTimeout(state.timer);
  const loading = (state.loading = new AbortController());
  const context = { params: place?.params ?? {}, query: target.searchParams, console: state.console, signal: loading.signal,
    navigate, refresh, announce, has: (path) => VIEWS.some((view) => view.path === path), sample: () => state.sample };
  const slow = setTimeout(() => document.body.classList.add("loading"), 120);
  let module;
  try {
    if (!place) throw new ApiError(404, { name: "NOT_FOUND", message: `there is no page ${target.pathname}` });
    const wanted = import(`./views/${place.view.module}.js`);
    if (error) throw error;
    data ??= await get(target.pathname + target.search, { signal: loading.signal });
    module = await wanted;
  } catch (caught) {
    if (loading.signal.aborted || caught.name === "AbortError") return;
    error = caught;
  } finally {
    clearTimeout(slow);
    document.body.classList.remove("loading");
  }
  if (loading.signal.aborted) return;
  // With a token of the console's present process, for it may be another one.
  if (error?.name === "LOGIN_REQUIRED" && !isFirst && !isSignedOut()) return location.reload();
  state.view?.leave?.();
  state.shown = { ...place, url: target, module };
  main.replaceChildren();
  document.body.classList.toggle("signed-out", error?.name === "LOGIN_REQUIRED");
  try {
    state.view = error ? await showError(error, target) : (module.mount(main, context, data) ?? {});
  } catch (bug) {
    console.error(bug);
    state.view = await showError(new ApiError(500, { message: `this page has a bug: ${bug.message}` }), target);
  }
  const title = main.querySelector("h1")?.dataset.title ?? main.querySelector("h1")?.textContent ?? "";
  document.title = title ? `${title} · triolog` : "triolog";
  drawRail();
  if (!isFirst && !keepsFocus) {
    scrollTo(0, scroll);
    (main.querySelector("[data-focus]") ?? main).focus({ preventScroll: true });
    announce(title);
  }
  if (!error && module.refresh) state.timer = setTimeout(refresh, module.refresh);
}

async function showError(error, target) {
  if (error.name === "LOGIN_REQUIRED" || error.status === 401) {
    const module = await import("./views/sign_in.js");
    return module.mount(main, { ...state, signIn, message: error.name === "LOGIN_REQUIRED" ? null : error.message }) ?? {};
  }
  const isGone = error.status === 503 || error.status === undefined;
  const title = isGone ? "No answer" : error.status === 404 ? "Not here" : error.status === 403 ? "Not allowed" : "That did not work";
  fill(main, h("div", { class: "failure" }, h("h1", {}, title), h("p", {}, sentence(error.message)),
    error.code !== null && error.code !== undefined && h("p", { class: "soft" }, h("code", {}, error.name)),
    h("p", {}, h("button", { onclick: () => show(target.href) }, "Try again"), " ", h("a", { href: "/" }, "Overview"))));
  return { sample: (sample) => { if (isGone && sample.status.is_connected) show(location.href); } };
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

/** Go to a URL of ours; `replace`: without a step back to here. */
function navigate(url, { replace = false } = {}) {
  if (!replace) history.replaceState({ scroll: scrollY }, "");
  history[replace ? "replaceState" : "pushState"]({ scroll: 0 }, "", url);
  return replace ? refresh() : show(url);
}

/** Ask for the view's data again, and show what changed. */
async function refresh() {
  clearTimeout(state.timer);
  const { shown, view, loading } = state;
  if (!view?.update || document.hidden || !shown.module) return;
  try {
    const data = await get(location.pathname + location.search, { signal: loading.signal });
    if (!loading.signal.aborted) view.update(data);
    setProblem(null);
  } catch (error) {
    if (loading.signal.aborted) return;
    if (error.status === 401) return void show(location.href);
    setProblem(error);
  }
  if (shown.module.refresh && state.loading === loading) state.timer = setTimeout(refresh, shown.module.refresh);
}

addEventListener("popstate", (event) => show(location.href, { scroll: event.state?.scroll ?? 0 }));
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || link.target || link.hasAttribute("download") || !found(url.pathname)) return;
  if (url.hash && url.pathname === location.pathname) return;
  event.preventDefault();
  navigate(url.href);
});

function announce(text) {
  put(document.getElementById("announcer"), text);
}

// ---- how the server is -------------------------------------------------------------------------------------------------------

let stopListening = () => {};

function listen() {
  stopListening();
  stopListening = stream("/events", {
    sample(sample) {
      const wasConnected = state.sample?.status.is_connected;
      state.sample = sample;
      drawStatus();
      state.view?.sample?.(sample);
      if (wasConnected === false && sample.status.is_connected) refresh();
    },
    ended: () => show(location.href),
  }, { state(how, error) {
    state.isHeard = how === "open";
    state.refused = error;
    if (error?.status === 401 && !isSignedOut()) show(location.href);
    drawStatus();
  } });
}

const isSignedOut = () => document.body.classList.contains("signed-out");

function setProblem(error) {
  state.problem = error;
  drawStatus();
}

function drawStatus() {
  const { sample, isHeard, refused, problem } = state;
  const banner = document.getElementById("banner");
  let text = "";
  if (isSignedOut()) text = "";
  else if (!isHeard) text = `${refused ? sentence(refused.message) : "The console's own process does not respond."} What is shown stays; it is tried again.`;
  else if (sample && !sample.status.is_connected)
    text = `No response from ${state.console.server} since ${clock(sample.status.since_ms)}: ${sample.status.reason}. The page shows the state of that time.`;
  else if (problem) text = `This view is not brought up to date: ${problem.message}`;
  put(banner, text);
  mark(banner, "class", text ? "shown" : null);
  const badge = document.getElementById("state");
  if (!badge) return;
  const how = !isHeard || (sample && !sample.status.is_connected) ? "lost" : !sample ? "unknown" : sample.ready.is_ready ? "ready" : "trouble";
  mark(badge, "class", how);
  put(badge, { lost: "no answer", unknown: "looking", ready: "ready", trouble: "not ready" }[how]);
}

// ---- the rail ----------------------------------------------------------------------------------------------------------------

const shownViews = VIEWS.filter((view) => view.key && (!view.needs || state.console[view.needs]));
const links = shownViews.map((view) => ({ view,
  node: h("a", { href: view.path }, view.title, h("kbd", { "aria-hidden": "true" }, `g ${view.key}`)) }));
const user = h("p", { class: "user" });
const zoneButton = h("button", { class: "plain", onclick: turnZone, title: "Time zone of the page (u)" });
const themeButton = h("button", { class: "plain", onclick: turnTheme, title: "Light or dark (d)" });

/** Made once, so that focus stays where it is. */
function makeRail() {
  fill(document.getElementById("rail"), h("a", { class: "mark", href: "/", "aria-label": "triolog, overview" }, logo(), "triolog"),
    h("p", { class: "server" }, h("span", { id: "state", class: "unknown" }, "looking"), h("span", { class: "address" }, state.console.server)),
    h("nav", { "aria-label": "Views" }, h("ul", {}, links.map(({ node }) => h("li", {}, node)))),
    h("div", { class: "tools" }, user, zoneButton, themeButton, h("button", { class: "plain", onclick: help, title: "Keys (?)" }, "Keys")));
}

function drawRail() {
  const here = state.shown?.view;
  for (const { view, node } of links) mark(node, "aria-current", here === view ? "page" : here && here.under === view.path ? "true" : null);
  const { user: name, can_log_out } = state.console;
  fill(user, name, can_log_out && h("button", { class: "plain", onclick: signOut }, "log out"));
  user.hidden = !name;
  put(zoneButton, `Times: ${zoneName()}`);
  put(themeButton, `Theme: ${theme()}`);
  drawStatus();
}

function logo() {
  const image = h("img", { src: document.querySelector("link[rel=icon]").href, alt: "", width: 22, height: 22 });
  return image;
}

const theme = () => document.documentElement.dataset.theme ?? "auto";

function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch { /* no storage: until the page is closed */ }
}

function turnTheme() {
  const next = { auto: "dark", dark: "light", light: "auto" }[theme()];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  remember("theme", next);
  drawRail();
}

function turnZone() {
  setZone(zoneName() === "UTC" ? "local" : "UTC");
  remember("zone", zoneName());
  show(location.href, { keepsFocus: true });
}

// ---- logging in and out ------------------------------------------------------------------------------------------------------

async function signIn(user, password) {
  const told = await send("POST", "/login", { user, password });
  setCsrfToken(told.csrf_token);
  state.console = { ...state.console, user: told.user, can_log_out: true };
  await show(location.href);
  listen();
}

async function signOut() {
  const told = await send("POST", "/logout");
  setCsrfToken(told.csrf_token);
  state.console = { ...state.console, user: null, can_log_out: false };
  state.sample = null;
  await show(location.href);
  listen();
}

// ---- keyboard ----------------------------------------------------------------------------------------------------------------

let began = -Infinity; // when g was pressed

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (isTyping) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (performance.now() - began < 1500) {
    began = -Infinity;
    const view = VIEWS.find((each) => each.key === event.key);
    if (view) {
      event.preventDefault();
      navigate(view.path);
      return;
    }
  }
  const act = { g: () => { began = performance.now(); }, "?": help, d: turnTheme, u: turnZone, "/": () => filterField()?.focus(),
    j: () => step(1), k: () => step(-1), ArrowDown: () => step(1, true), ArrowUp: () => step(-1, true) }[event.key];
  if (!act) return;
  if (act() !== false) event.preventDefault();
});

const filterField = () => main.querySelector("input[type=search]");

/** From row to row of a table, by the links that they begin with. */
function step(by, onlyInside = false) {
  const links = [...main.querySelectorAll("tbody tr a.row")];
  const at = links.indexOf(document.activeElement);
  if (!links.length || (onlyInside && at < 0)) return false;
  links[Math.max(0, Math.min(links.length - 1, at + by))].focus();
  return true;
}

function help() {
  const keys = [...shownViews.map((view) => [`g ${view.key}`, view.title]), ["/", "Filter"],
    ["j  k", "Next row, row before"], ["Enter", "Open"], ["←  →", "Along a chart"], ["u", "UTC or local time"], ["d", "Light or dark"], ["?", "These keys"]];
  const dialog = h("dialog", { class: "keys", "aria-labelledby": "keys-title", onclose: () => dialog.remove() },
    h("h2", { id: "keys-title" }, "Keys"), h("dl", {}, keys.map(([key, what]) => [h("dt", {}, key.split("  ").map((each) => h("kbd", {}, each))), h("dd", {}, what)])),
    h("form", { method: "dialog" }, h("button", { autofocus: true }, "Close")));
  document.body.append(dialog);
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.showModal();
}

// ---- begin -------------------------------------------------------------------------------------------------------------------

try {
  setZone(localStorage.getItem("zone"));
} catch { /* no storage: local */ }
history.scrollRestoration = "manual";
makeRail();
drawRail();
const problem = first.error && new ApiError(first.error.status, first.error);
await show(location.href, { data: first.view, error: problem, isFirst: true });
listen();
