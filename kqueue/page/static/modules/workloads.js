// @ts-check
// The table of workloads with their reasons, and the page of one workload.

import { age, el, notice } from "./dom.js";

/** @typedef {Record<string, any>} Json */

const MOST_ROWS = 500;
const ORDER = ["Pending", "Stopped", "Reserved", "Admitted", "Running", "Finished"];

/**
 * Return the rows that contain all words of the search, waiting ones first, then by age.
 * @param {Json[]} items
 * @param {string} search
 */
export function found(items, search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const kept = items.filter((row) => {
    const text = `${row.namespace}/${row.name} ${row.owner} ${row.queue} ${row.clusterQueue} ${row.state} ${row.message}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  return kept.sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state) || String(one.created).localeCompare(String(other.created)));
}

/**
 * @param {HTMLElement} view
 * @param {Json | undefined} answer
 * @param {string} search
 */
export function drawWorkloads(view, answer, search) {
  if (!answer) return void view.replaceChildren(el("p", { class: "quiet" }, "Waiting for the first answer."));
  if (answer.error) return void view.replaceChildren(notice(answer.error));
  const now = Date.now();
  const rows = found(answer.items, search);
  const shownRows = rows.slice(0, MOST_ROWS);
  const more = rows.length - shownRows.length + (answer.left ?? 0);
  const head = [["Workload", ""], ["Queue", ""], ["Priority", "number"], ["Pods", "number"], ["State", ""], ["Since", "number"], ["Message", ""]];
  view.replaceChildren(
    el(
      "table",
      {},
      el("caption", {}, `${rows.length} of ${answer.items.length} workloads${more ? `; ${more} are not shown: search for them` : ""}`),
      el("thead", {}, el("tr", {}, ...head.map(([title, kind]) => el("th", { scope: "col", class: kind || null }, title)))),
      el(
        "tbody",
        {},
        ...shownRows.map((row) =>
          el(
            "tr",
            {},
            el("td", { class: "name" }, el("a", { href: workloadLink(row.namespace, row.name) }, `${row.namespace}/${row.owner || row.name}`)),
            el("td", { class: "name" }, row.clusterQueue && row.clusterQueue !== row.queue ? `${row.queue} (${row.clusterQueue})` : row.queue),
            el("td", { class: "number" }, row.priority),
            el("td", { class: "number" }, row.pods),
            el("td", {}, row.state),
            el("td", { class: "number" }, age(row.since || row.created, now)),
            el("td", { class: "words" }, row.message),
          ),
        ),
      ),
    ),
  );
}

/**
 * Return the address of a workload's page.
 * @param {string} namespace
 * @param {string} name
 */
export function workloadLink(namespace, name) {
  return `#/workload/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
}

/**
 * Ask why a workload waits or runs, and draw the answer.
 * @param {HTMLElement} view
 * @param {string} namespace
 * @param {string} name
 * @param {AbortSignal} signal
 */
export async function drawWorkload(view, namespace, name, signal) {
  if (!view.hasChildNodes()) view.append(el("p", { class: "quiet" }, "Asking the planner."));
  const path = `/api/explanations/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const answer = await (await fetch(path, { signal })).json();
  if (answer.error) return void view.replaceChildren(el("h2", {}, `${namespace}/${name}`), notice(answer.error));
  view.replaceChildren(
    el("div", { class: "lines" }, ...answer.lines.map((/** @type {[string, number, string]} */ [text, depth, style]) => el("p", { class: style || null }, "\u2003".repeat(depth) + text))),
  );
}
