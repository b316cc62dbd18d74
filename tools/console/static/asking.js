// A question before something is changed. What is deleted has to be typed.

import { h, put } from "./dom.js";

/** `act()` does it; its error is shown and the question stays. `typed`: a name that has to be typed. */
export function askFirst({ title, text, children = [], typed = null, button, act }) {
  const problem = h("p", { class: "bad", role: "alert" });
  const doing = h("button", { class: "primary", disabled: typed !== null }, button);
  const name = typed !== null && h("input", { autocomplete: "off", spellcheck: "false", oninput: () => { doing.disabled = name.value !== typed; } });
  const dialog = h("dialog", { class: "asking-dialog", "aria-labelledby": "asking-title", onclose: () => dialog.remove() },
    h("h2", { id: "asking-title" }, title),
    h("form", { async onsubmit(event) {
      event.preventDefault();
      doing.disabled = true;
      try {
        await act();
        dialog.close();
      } catch (error) {
        put(problem, error.message);
        doing.disabled = false;
      }
    } }, text && h("p", {}, text), children, typed !== null && h("label", {}, `Type ${typed} to continue`, name), problem,
    h("p", { class: "split" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), doing)));
  document.body.append(dialog);
  dialog.showModal();
}
