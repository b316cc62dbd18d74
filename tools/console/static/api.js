// The JSON twin of each page, streams of events, and changes with the token of this page.

/** What a request was answered with when it could not be done. */
export class ApiError extends Error {
  constructor(status, { name, message, code } = {}) {
    super(message ?? `the console answered ${status}`);
    this.status = status;
    this.name = name ?? "ERROR";
    this.code = code ?? null;
  }
}

export async function get(path, { signal } = {}) {
  return answered(await fetch(`/api${path}`, { signal, headers: { accept: "application/json" } }));
}

/** POST, PUT or DELETE with a body of JSON. */
export async function send(method, path, body = {}, { signal } = {}) {
  const headers = { "content-type": "application/json", "x-csrf-token": csrfToken().content };
  return answered(await fetch(`/api${path}`, { method, signal, headers, body: JSON.stringify(body) }));
}

export const setCsrfToken = (token) => { csrfToken().content = token; };
const csrfToken = () => document.querySelector("meta[name=csrf-token]");

async function answered(response) {
  let value = {};
  try {
    value = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(response.status, { message: `the console's answer (${response.status}) is no JSON` });
  }
  if (!response.ok) throw new ApiError(response.status, value.error);
  return value;
}

const AGAIN_MS = 2000;

/** Events of a stream: `on` has a function for each name. While the page is hidden there is no connection, for browsers have six of
 *  them for all pages of a host. `state("open"|"lost")` tells how it goes. A `path` that is a function is asked each time the stream
 *  is opened; without `again` a stream that is lost is over. Answers a function that ends it. */
export function stream(path, on, { state = () => {}, pauses = true, again = true } = {}) {
  let source = null, timer = 0, isOver = false;
  const open = () => {
    clearTimeout(timer);
    if (isOver || source || (pauses && document.hidden)) return;
    source = new EventSource(`/api${typeof path === "function" ? path() : path}`);
    source.onopen = () => state("open");
    source.onerror = () => {
      state("lost");
      if (again && typeof path === "string" && source?.readyState !== EventSource.CLOSED) return; // it tries again by itself
      close();
      isOver ||= !again;
      timer = setTimeout(open, AGAIN_MS);
    };
    for (const [name, take] of Object.entries(on)) {
      source.addEventListener(name, (event) => take(JSON.parse(event.data)));
    }
  };
  const close = () => {
    source?.close();
    source = null;
  };
  const look = () => (document.hidden && pauses ? close() : open());
  document.addEventListener("visibilitychange", look);
  open();
  return () => {
    isOver = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", look);
    close();
  };
}
