// @ts-check
// The tree of Cohorts and ClusterQueues, with quota and waiting workloads.

import { askQuota } from "./ask.js";
import { age, el, notice, redrawn } from "./dom.js";

/** @typedef {Record<string, any>} Json */

const UNITS = { Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 };

/**
 * Return a Kubernetes quantity as a number, for lengths of bars only.
 * @param {string} text
 */
export function amount(text) {
  const found = /^([-+.\deE]*?\d\.?)([A-Za-z]*)$/.exec(String(text));
  if (!found) return 0;
  return Number(found[1]) * (/** @type {Record<string, number>} */ (UNITS)[found[2]] ?? 1);
}

/**
 * Return rows in the order of the tree: each Cohort before what is in it.
 * @param {Json[]} cohorts
 * @param {Json[]} queues
 * @returns {{depth: number, cohort?: Json, queue?: Json}[]}
 */
export function treeRows(cohorts, queues) {
  /** @type {{depth: number, cohort?: Json, queue?: Json}[]} */
  const rows = [];
  const known = new Set(cohorts.map((cohort) => cohort.name));
  const below = (/** @type {string} */ name, /** @type {number} */ depth) => {
    for (const cohort of cohorts.filter((one) => (known.has(one.parent) ? one.parent : "") === name)) {
      rows.push({ depth, cohort });
      below(cohort.name, depth + 1);
    }
    for (const queue of queues.filter((one) => (known.has(one.cohort) ? one.cohort : "") === name)) rows.push({ depth, queue });
  };
  below("", 0);
  return rows;
}

/**
 * Return the stripes of a hatched part of a bar: borrowed quota differs by shape, too, and not by its colour alone.
 * @param {number} from
 * @param {number} to
 * @returns {[number, number, string][]}
 */
function stripes(from, to) {
  /** @type {[number, number, string][]} */
  const found = [];
  for (let x = from + 2; x + 2 <= to; x += 5) found.push([x, 2, "var(--ground)"]);
  return found;
}

/**
 * Draw how much of a quota is reserved; what is beyond it is hatched.
 * @param {Json} resource
 * @param {string} quota
 */
function bar(resource, quota) {
  const nominal = amount(quota);
  const reserved = amount(resource.reserved);
  const whole = Math.max(nominal, reserved, 1e-9);
  const own = Math.min(nominal, reserved);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("width", "180");
  svg.setAttribute("height", "12");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${resource.reserved} of ${quota}`);
  const parts = /** @type {[number, number, string][]} */ ([
    [0, 180, "var(--free)"],
    [0, (180 * own) / whole, "var(--held)"],
    [(180 * own) / whole, (180 * (reserved - own)) / whole, "var(--borrowed)"],
    ...stripes((180 * own) / whole, (180 * reserved) / whole),
  ]);
  for (const [x, width, fill] of parts) {
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    rect.setAttribute("x", String(x));
    rect.setAttribute("width", String(Math.max(0, width)));
    rect.setAttribute("height", "12");
    rect.setAttribute("fill", fill);
    svg.append(rect);
  }
  return svg;
}

/** @param {number} depth */
function indented(depth) {
  return "\u2003".repeat(depth);
}

/**
 * @param {string} queue
 * @param {Json} resource
 */
function whatIf(queue, resource) {
  const label = `What if ${queue} had another quota of ${resource.flavor} ${resource.resource}?`;
  return el("button", { type: "button", "aria-label": label, "data-key": label, onclick: () => askQuota(queue, resource) }, "What if");
}

/**
 * @param {Json} queue
 * @param {number} depth
 * @param {number} now
 */
function queueRows(queue, depth, now) {
  const resources = queue.resources.length ? queue.resources : [{}];
  return resources.map((/** @type {Json} */ resource, /** @type {number} */ number) => {
    const first = number === 0;
    const state = queue.active ? "" : `${queue.reason ?? "inactive"}: ${queue.message ?? ""}`;
    const wait = queue.longestWaitSeconds === undefined ? "" : age(new Date(now - queue.longestWaitSeconds * 1000).toISOString(), now);
    return el(
      "tr",
      {},
      el(
        "td",
        { class: "name" },
        first ? indented(depth) : null,
        first ? el("a", { href: `#/workloads?search=${encodeURIComponent(queue.metadata.name)}`, "data-key": queue.metadata.name }, queue.metadata.name) : null,
        first && state ? el("div", { class: "warn" }, state) : null,
      ),
      el("td", { class: "number" }, first ? queue.pending.active + queue.pending.inadmissible : ""),
      el("td", { class: "number" }, first ? queue.admitted : ""),
      el("td", { class: "number" }, first ? wait : ""),
      el("td", {}, resource.flavor ? `${resource.flavor} ${resource.resource ?? resource.name}` : ""),
      el("td", {}, resource.flavor ? bar(resource, resource.nominal) : ""),
      el("td", { class: "number" }, resource.reserved ?? ""),
      el("td", { class: "number" }, resource.nominal ?? ""),
      el("td", { class: "number" }, resource.borrowed ?? ""),
      el("td", { class: "number" }, resource.available ?? ""),
      el("td", {}, resource.flavor ? whatIf(queue.metadata.name, resource) : null),
    );
  });
}

/**
 * @param {Json} cohort
 * @param {number} depth
 */
function cohortRows(cohort, depth) {
  const resources = cohort.resources.length ? cohort.resources : [{}];
  return resources.map((/** @type {Json} */ resource, /** @type {number} */ number) =>
    el(
      "tr",
      {},
      el("td", { class: "name" }, number ? null : indented(depth), number ? null : el("b", {}, cohort.name), number ? null : el("span", { class: "quiet" }, " cohort")),
      el("td", {}), el("td", {}), el("td", {}),
      el("td", {}, resource.flavor ? `${resource.flavor} ${resource.resource ?? resource.name}` : ""),
      el("td", {}, resource.flavor ? bar(resource, resource.quota) : ""),
      el("td", { class: "number" }, resource.reserved ?? ""),
      el("td", { class: "number" }, resource.quota ?? ""),
      el("td", {}), el("td", {}), el("td", {}),
    ),
  );
}

/**
 * Draw the view.
 * @param {HTMLElement} view
 * @param {Json | undefined} answer QueueSummaryList
 * @param {string} search
 */
export function drawQueues(view, answer, search) {
  if (!answer) return void view.replaceChildren(el("p", { class: "quiet" }, "Waiting for the first answer."));
  if (answer.error) return void view.replaceChildren(notice(answer.error));
  const now = Date.now();
  const words = search.toLowerCase();
  const rows = treeRows(answer.cohorts, answer.items).filter(
    ({ cohort, queue }) => !words || (queue?.metadata.name ?? cohort?.name ?? "").toLowerCase().includes(words),
  );
  const head = [["Queue", ""], ["Waiting", "number"], ["Admitted", "number"], ["Longest wait", "number"], ["Flavor and resource", ""], ["Use", ""], ["Reserved", "number"], ["Quota", "number"], ["Borrowed", "number"], ["Available", "number"], ["Question", ""]];
  const body = rows.flatMap(({ depth, cohort, queue }) => (queue ? queueRows(queue, depth, now) : cohortRows(/** @type {Json} */ (cohort), depth)));
  const left = answer.left ? `; ${answer.left} more are not shown` : "";
  redrawn(
    view,
    el(
      "table",
      {},
      el("caption", {}, `ClusterQueues: ${answer.items.length}, Cohorts: ${answer.cohorts.length}${left}. The striped part of a bar is borrowed quota.`),
      el("thead", {}, el("tr", {}, ...head.map(([title, kind]) => el("th", { scope: "col", class: kind || null }, title)))),
      el("tbody", {}, ...body),
    ),
  );
  if (!answer.items.length) view.append(el("p", { class: "quiet" }, "There is no ClusterQueue."));
}

/**
 * Return the view.
 * @param {HTMLElement} root
 * @returns {import("./main.js").View}
 */
export function queuesView(root) {
  return { feeds: () => ["queues"], draw: (answers, { search }) => drawQueues(root, answers.get("queues"), search) };
}
