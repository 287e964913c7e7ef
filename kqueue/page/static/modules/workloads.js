// @ts-check
// The table of workloads with their reasons.

import { age, el, matcher, notice, workloadLink } from "./dom.js";
import { VirtualTable } from "./table.js";

/** @typedef {Record<string, any>} Json */
/** @typedef {import("./main.js").Route} Route */
/** @typedef {import("./main.js").Answers} Answers */

const ORDER = ["Pending", "Stopped", "Reserved", "Admitted", "Running", "Finished"];
const COLUMNS = [
  { title: "Workload", kind: "name", width: "22%" },
  { title: "Queue", kind: "name", width: "14%" },
  { title: "Priority", kind: "number", width: "6%" },
  { title: "Pods", kind: "number", width: "6%" },
  { title: "State", width: "8%" },
  { title: "Since", kind: "number", width: "6%" },
  { title: "Message", kind: "words" },
];

/**
 * Return the rows that contain all words of the search, waiting ones first, then by age.
 * @param {Json[]} items the oldest first
 * @param {string} search
 */
export function found(items, search) {
  const matches = matcher(search);
  const isEmpty = !search.trim();
  /** @type {Map<string, Json[]>} */
  const groups = new Map([...ORDER, ""].map((state) => [state, []]));
  for (const row of items) {
    if (isEmpty || matches((row.text ??= textOf(row)))) (groups.get(row.state) ?? /** @type {Json[]} */ (groups.get(""))).push(row);
  }
  return [...groups.values()].flat();
}

/** @param {Json} row */
function textOf(row) {
  return `${row.namespace}/${row.name} ${row.owner} ${row.queue} ${row.clusterQueue} ${row.state} ${row.message}`.toLowerCase();
}

export class WorkloadsView {
  /** @param {HTMLElement} view */
  constructor(view) {
    this.view = view;
    /** @type {Json[]} */
    this.rows = [];
    /** @type {Json | undefined} */
    this.answer = undefined;
    this.search = "";
    this.now = 0;
    this.table = new VirtualTable("Workloads", COLUMNS, (index) => this.rowAt(index));
  }

  feeds() {
    return ["workloads"];
  }

  /**
   * @param {Answers} answers
   * @param {Route} route
   */
  draw(answers, { search }) {
    const answer = answers.get("workloads");
    if (!answer) return void this.view.replaceChildren(el("p", { class: "quiet" }, "Waiting for the first answer."));
    if (answer.error) return void this.view.replaceChildren(notice(answer.error));
    if (answer !== this.answer || search !== this.search) this.rows = found(answer.items, search);
    this.answer = answer;
    this.search = search;
    this.now = Date.now();
    if (!this.table.root.isConnected) this.view.replaceChildren(this.table.root);
    const left = answer.left ? `; the newest ${answer.left} are left out` : "";
    this.table.show(this.rows.length, `${this.rows.length} of ${answer.items.length} workloads${left}`);
  }

  /**
   * @param {number} index
   * @returns {import("./table.js").Row}
   */
  rowAt(index) {
    const row = this.rows[index];
    const since = age(row.since || row.created, this.now);
    return {
      key: `${row.namespace}/${row.name}`,
      drawn: JSON.stringify([row.owner, row.queue, row.clusterQueue, row.priority, row.pods, row.state, since, row.message]),
      cells: [
        el("a", { href: workloadLink(row.namespace, row.name) }, `${row.namespace}/${row.owner || row.name}`),
        row.clusterQueue && row.clusterQueue !== row.queue ? `${row.queue} (${row.clusterQueue})` : row.queue,
        row.priority,
        row.pods,
        row.state,
        since,
        row.message,
      ],
    };
  }

  close() {
    this.table.close();
  }
}
