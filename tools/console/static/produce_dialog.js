// A record written by hand.

import { send } from "./api.js";
import { choose, h, put } from "./dom.js";

const KINDS = [["text", "text"], ["json", "JSON"], ["msgpack", "JSON, sent as MessagePack"], ["hex", "hex"]];

/** `written(answer)` is told where it went. */
export function produceDialog(topic, partitions, written) {
  const partition = choose("Partition", [["", "by key"], ...Array.from({ length: Math.min(partitions, 1000) }, (_, i) => [i, `partition ${i}`])], "");
  const key = h("input", { name: "key", spellcheck: "false", autocomplete: "off" }), keyKind = choose("Key is", KINDS, "text");
  const value = h("textarea", { name: "value", rows: 8, spellcheck: "false" }), valueKind = choose("Value is", KINDS, "text");
  const hasKey = h("input", { type: "checkbox" }), isNull = h("input", { type: "checkbox", onchange: () => { value.disabled = isNull.checked; } });
  const headers = h("textarea", { name: "headers", rows: 2, spellcheck: "false", placeholder: "name: value" });
  const problem = h("p", { class: "bad", role: "alert" });
  key.addEventListener("input", () => { hasKey.checked = true; });
  const dialog = h("dialog", { class: "asking-dialog", "aria-labelledby": "produce-title", onclose: () => dialog.remove() },
    h("h2", { id: "produce-title" }, `Write a record to ${topic}`),
    h("form", { onsubmit }, h("label", {}, "Partition", partition),
      h("label", {}, "Key", key), h("p", { class: "split" }, h("label", { class: "check" }, hasKey, "with a key"), keyKind),
      h("label", {}, "Value", value), h("p", { class: "split" }, h("label", { class: "check" }, isNull, "null (a tombstone)"), valueKind),
      h("label", {}, "Headers, one a line", headers), problem,
      h("p", { class: "split" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), h("button", { class: "primary" }, "Write"))));

  async function onsubmit(event) {
    event.preventDefault();
    const lines = headers.value.split("\n").filter((line) => line.trim());
    const body = { partition: partition.value === "" ? null : Number(partition.value), key: hasKey.checked ? key.value : null, key_as: keyKind.value,
      value: isNull.checked ? null : value.value, value_as: valueKind.value,
      headers: lines.map((line) => { const at = line.indexOf(":"); return at < 0 ? [line.trim(), null] : [line.slice(0, at).trim(), line.slice(at + 1).trim()]; }) };
    try {
      const told = await send("POST", `/topics/${encodeURIComponent(topic)}/records`, body);
      dialog.close();
      written(told);
    } catch (error) {
      put(problem, error.message);
    }
  }
  document.body.append(dialog);
  dialog.showModal();
}
