// Logging in, where the server wants users.

import { h, put } from "../dom.js";

export function mount(root, { console, signIn, message }) {
  const problem = h("p", { class: "bad", role: "alert" }, message ?? "");
  const button = h("button", { class: "primary" }, "Log in");
  const field = (name, label, type, autocomplete) => h("label", {}, label,
    h("input", { name, type, autocomplete, required: true, maxlength: 1000, spellcheck: "false", autocapitalize: "none" }));
  const form = h("form", {
    class: "sign-in", "aria-label": "Log in",
    async onsubmit(event) {
      event.preventDefault();
      const { user, password } = Object.fromEntries(new FormData(form));
      button.disabled = true;
      put(problem, "");
      try {
        await signIn(user, password);
      } catch (error) {
        put(problem, error.message);
        form.elements.password.select();
      } finally {
        button.disabled = false;
      }
    },
  }, h("h1", {}, "Log in"), h("p", { class: "soft" }, `The server ${console.server} has users. It enforces your permissions here.`),
  field("user", "User", "text", "username"), field("password", "Password", "password", "current-password"), problem, button);
  root.append(form);
  form.elements.user.focus();
}
