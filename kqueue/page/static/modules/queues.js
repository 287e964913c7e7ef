// @ts-check
// The tree of Cohorts and ClusterQueues, with quota and waiting workloads.

import { askQuota } from "./ask.js";
import { age, el, notice } from "./dom.js";
import { VirtualTable } from "./table.js";

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
  svg.setAttribute("viewBox", "0 0 180 12");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "span");
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
  return el("button", { type: "button", "aria-label": label, onclick: () => askQuota(queue, resource) }, "What if");
}

/** @typedef {{depth: number, cohort?: Json, queue?: Json, resource: Json, first: boolean}} Line one resource of a Cohort or a ClusterQueue */

const COLUMNS = [
  { title: "Queue", kind: "name", width: "16%" },
  { title: "Waiting", kind: "number", width: "7%" },
  { title: "Admitted", kind: "number", width: "7.5%" },
  { title: "Longest wait", kind: "number", width: "9%" },
  { title: "Flavor and resource", width: "15%" },
  { title: "Use", width: "10%" },
  { title: "Reserved", kind: "number", width: "7.5%" },
  { title: "Quota", kind: "number", width: "6%" },
  { title: "Borrowed", kind: "number", width: "7.5%" },
  { title: "Available", kind: "number", width: "7.5%" },
  { title: "Question", width: "7%" },
];

/**
 * @param {Line} line of a ClusterQueue
 * @param {Json} queue
 * @param {number} now
 * @returns {(Node | string | number | null)[]}
 */
function queueCells({ depth, resource, first }, queue, now) {
  const state = queue.active ? "" : `${queue.reason ?? "inactive"}: ${queue.message ?? ""}`;
  const link = el("a", { href: `#/workloads?search=${encodeURIComponent(queue.metadata.name)}` }, queue.metadata.name);
  const name = el("span", {}, indented(depth), link, state ? el("div", { class: "warn" }, state) : null);
  const column = resource.flavor ? `${resource.flavor} ${resource.resource}` : "";
  return [
    first ? name : null,
    first ? queue.pending.active + queue.pending.inadmissible : null,
    first ? queue.admitted : null,
    first ? waitOf(queue, now) : null,
    column,
    column ? bar(resource, resource.nominal) : null,
    resource.reserved,
    resource.nominal,
    resource.borrowed,
    resource.available,
    column ? whatIf(queue.metadata.name, resource) : null,
  ];
}

/**
 * @param {Line} line of a Cohort
 * @param {Json} cohort
 * @returns {(Node | string | null)[]}
 */
function cohortCells({ depth, resource, first }, cohort) {
  const name = el("span", {}, indented(depth), el("b", {}, cohort.name), el("span", { class: "quiet" }, " cohort"));
  const column = resource.flavor ? `${resource.flavor} ${resource.resource}` : "";
  return [first ? name : null, null, null, null, column, column ? bar(resource, resource.quota) : null, resource.reserved, resource.quota, null, null, null];
}

/**
 * @param {Json} queue
 * @param {number} now
 */
function waitOf(queue, now) {
  return queue.longestWaitSeconds === undefined ? "" : age(new Date(now - queue.longestWaitSeconds * 1000).toISOString(), now);
}

export class QueuesView {
  /** @param {HTMLElement} view */
  constructor(view) {
    this.view = view;
    /** @type {Line[]} */
    this.lines = [];
    this.now = 0;
    this.table = new VirtualTable("Queues", COLUMNS, (index) => this.rowAt(index));
  }

  feeds() {
    return ["queues"];
  }

  /**
   * @param {import("./main.js").Answers} answers
   * @param {import("./main.js").Route} route
   */
  draw(answers, { search }) {
    const answer = answers.get("queues");
    if (!answer) return void this.view.replaceChildren(el("p", { class: "quiet" }, "Waiting for the first answer."));
    if (answer.error) return void this.view.replaceChildren(notice(answer.error));
    if (!answer.items.length) return void this.view.replaceChildren(el("p", { class: "quiet" }, "There is no ClusterQueue."));
    const words = search.toLowerCase();
    this.now = Date.now();
    this.lines = treeRows(answer.cohorts, answer.items)
      .filter(({ cohort, queue }) => !words || (queue?.metadata.name ?? cohort?.name ?? "").toLowerCase().includes(words))
      .flatMap((row) => {
        const { resources } = /** @type {Json} */ (row.queue ?? row.cohort);
        return (resources.length ? resources : [{}]).map((/** @type {Json} */ resource, /** @type {number} */ place) => ({ ...row, resource, first: place === 0 }));
      });
    if (!this.table.root.isConnected) this.view.replaceChildren(this.table.root);
    const left = answer.left ? `; ${answer.left} more are not shown` : "";
    this.table.show(this.lines.length, `ClusterQueues: ${answer.items.length}, Cohorts: ${answer.cohorts.length}${left}. The striped part of a bar is borrowed quota.`);
  }

  /**
   * @param {number} index
   * @returns {import("./table.js").Row}
   */
  rowAt(index) {
    const line = this.lines[index];
    const { depth, queue, cohort, resource, first } = line;
    const parts = queue
      ? [queue.metadata.name, queue.pending, queue.admitted, waitOf(queue, this.now), queue.active, queue.reason, queue.message]
      : [/** @type {Json} */ (cohort).name];
    return {
      key: JSON.stringify([!queue, parts[0], resource.flavor, resource.resource]),
      drawn: JSON.stringify([depth, first, resource, parts]),
      cells: queue ? queueCells(line, queue, this.now) : cohortCells(line, /** @type {Json} */ (cohort)),
    };
  }

  close() {
    this.table.close();
  }
}
