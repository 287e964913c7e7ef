// @ts-check
// What-ifs: a question about changes, asked with the user's rights, and its answer in a dialog.  Nothing is written.

import { el, notice } from "./dom.js";

/** @typedef {Record<string, any>} Json */

/**
 * Return the paragraphs of lines as commands print them.
 * @param {[string, number, string][]} lines text, depth, style
 */
export function linesOf(lines) {
  return el("div", { class: "lines" }, ...lines.map(([text, depth, style]) => el("p", { class: style || null }, "\u2003".repeat(depth) + text)));
}

/**
 * Ask what changes would do, and show the answer.
 * @param {string} title in words
 * @param {Json} spec of a WhatIf
 */
export async function askWhatIf(title, spec) {
  const answer = el("div", { "aria-live": "polite" }, el("p", { class: "quiet" }, "Asking the planner."));
  const asking = new AbortController();
  const dialog = dialogOf(`What if: ${title}?`, answer);
  dialog.addEventListener("close", () => asking.abort());
  try {
    const given = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(spec), signal: asking.signal };
    const found = await (await fetch("/api/whatifs", given)).json();
    answer.replaceChildren(found.error ? notice(found.error) : linesOf(found.lines));
  } catch (error) {
    if (!asking.signal.aborted) answer.replaceChildren(notice(`no answer: ${error}`));
  }
}

/**
 * Ask for another amount of a quota, and then what it would do.
 * @param {string} queue
 * @param {Json} resource of a ClusterQueue's summary
 */
export function askQuota(queue, resource) {
  const column = `${resource.flavor}.${resource.resource}`;
  const input = /** @type {HTMLInputElement} */ (el("input", { id: "amount", value: resource.nominal, autocomplete: "off", required: true }));
  const form = el(
    "form",
    { method: "dialog" },
    el("label", { for: "amount" }, `Quota of ${column} in ${queue} `),
    input,
    el("button", { type: "submit" }, "Ask"),
  );
  const dialog = dialogOf(`What if ${queue} had another quota?`, form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    dialog.close();
    askWhatIf(`${column} of ${queue} is ${input.value}`, { quotas: [{ clusterQueue: queue, column, value: input.value.trim() }] });
  });
  input.select();
}

/**
 * Open a dialog, which Escape and its button close; the focus goes back to where it was.
 * @param {string} title
 * @param {HTMLElement} content
 */
function dialogOf(title, content) {
  const before = document.activeElement;
  const dialog = /** @type {HTMLDialogElement} */ (
    el(
      "dialog",
      { "aria-labelledby": "dialog-title" },
      el("h2", { id: "dialog-title" }, title),
      content,
      el("p", { class: "quiet" }, "Nothing is changed by the question."),
      el("button", { type: "button", onclick: () => dialog.close() }, "Close"),
    )
  );
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before instanceof HTMLElement && before.isConnected) before.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
