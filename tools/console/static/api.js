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
    throw new ApiError(response.status, { message: `the console's answer (${response.status}) is not JSON` });
  }
  if (!response.ok) throw new ApiError(response.status, value.error);
  return value;
}

const AGAIN_MS = 2000;

/** Events of a stream: `on` has a function for each name. While the page is hidden there is no connection, for browsers have six of
 *  them for all pages of a host. `state("open"|"lost", error)` tells how it goes; `error`, where there is one, why it was refused or
 *  has failed. A `path` that is a function is asked each time the stream is opened; without `again` a stream that is lost is over.
 *  Answers a function that ends it. EventSource would not tell why it is refused. */
export function stream(path, on, { state = () => {}, pauses = true, again = true } = {}) {
  let reading = null, timer = 0, isOver = false;
  const open = async () => {
    clearTimeout(timer);
    if (isOver || reading || (pauses && document.hidden)) return;
    const { signal } = (reading = new AbortController());
    let failure = null;
    const take = (name, value) => {
      if (name === "failed") failure = new ApiError(0, value.error);
      else if (!signal.aborted) on[name]?.(value);
    };
    try {
      const response = await fetch(`/api${typeof path === "function" ? path() : path}`, { signal });
      if (!response.ok) await answered(response);
      state("open");
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (let read; !(read = await reader.read()).done;) {
        const events = (text + read.value).split("\n\n");
        text = events.pop();
        for (const event of events) {
          const [, name, value] = /^event: (.+)\ndata: (.*)$/.exec(event) ?? [];
          // Not inside of this `try`: an error in it is a bug of the page, and not one of the stream.
          if (name) queueMicrotask(() => take(name, JSON.parse(value)));
        }
      }
    } catch (error) {
      if (error instanceof ApiError) failure = error;
    }
    if (signal.aborted) return;
    reading = null;
    isOver ||= !again;
    timer = setTimeout(open, AGAIN_MS);
    state("lost", failure);
  };
  const close = () => {
    reading?.abort();
    reading = null;
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
