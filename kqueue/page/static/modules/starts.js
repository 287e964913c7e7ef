// @ts-check
// The planned future: when each waiting workload starts, and where, on one axis of time.

import { el, matcher, notice, svg, workloadLink } from "./dom.js";
import { VirtualTable } from "./table.js";
import { duration } from "./workload.js";

/** @typedef {Record<string, any>} Json */
/** @typedef {import("./main.js").Route} Route */
/** @typedef {import("./main.js").Answers} Answers */

const WIDTH = 400;
const COLUMNS = [
  { title: "Workload", kind: "name", width: "20%" },
  { title: "ClusterQueue", kind: "name", width: "12%" },
  { title: "Starts in (p50 to p90)", width: "18%" },
  { title: "From now", width: "26%" },
  { title: "Where, and after which workloads", kind: "words" },
];

/**
 * Return the workloads of a search: the next one to start first, workloads without a known start last.
 * @param {Json[]} items
 * @param {string} search
 */
export function inOrder(items, search) {
  const matches = matcher(search);
  const start = (/** @type {Json} */ item) => item.startTime.p50Seconds ?? Infinity;
  return items
    .filter((item) => matches(`${item.metadata.namespace}/${item.metadata.name} ${item.clusterQueue ?? ""} ${whereOf(item.startTime)}`))
    .sort((one, other) => (start(one) === start(other) ? 0 : start(one) - start(other)));
}

/**
 * Return where a workload starts, and what must end before, or why its start is not known.
 * @param {Json} start
 */
export function whereOf(start) {
  const parts = [];
  const domains = (start.domains ?? []).map((/** @type {Json} */ one) => `${one.domain.join("/")} (${one.pods})`);
  if (domains.length) parts.push(`in ${domains.join(", ")}${start.moreDomains ? ` and ${start.moreDomains} more` : ""}`);
  if (start.after) parts.push(`after ${named(start.after)}`);
  if (start.message) parts.push(start.message);
  if (start.unknown) parts.push(`without known run time: ${named(start.unknown)}`);
  return parts.join("; ");
}

/** @param {Json} some */
function named(some) {
  return [...some.workloads, ...(some.others ? [`${some.others} other${some.others === 1 ? "" : "s"}`] : [])].join(", ");
}

/**
 * Return the interval in words.
 * @param {Json} start
 */
export function whenOf(start) {
  if (start.p50Seconds === undefined) return "not known";
  const from = duration(start.p50Seconds * 1000);
  if (start.p90Seconds === undefined) return `${from} at the earliest`;
  return start.p90Seconds === start.p50Seconds ? from : `${from} to ${duration(start.p90Seconds * 1000)}`;
}

export class StartsView {
  /** @param {HTMLElement} view */
  constructor(view) {
    this.view = view;
    /** @type {Json[]} */
    this.rows = [];
    this.longest = 1;
    this.assumed = el("p", { class: "quiet" });
    this.table = new VirtualTable("Start times", COLUMNS, (index) => this.rowAt(index));
  }

  feeds() {
    return ["starts"];
  }

  /**
   * @param {Answers} answers
   * @param {Route} route
   */
  draw(answers, { search }) {
    const answer = answers.get("starts");
    if (!answer) return void this.view.replaceChildren(el("p", { class: "quiet" }, "Waiting for the first answer."));
    if (answer.error) return void this.view.replaceChildren(notice(answer.error));
    if (answer.message) return void this.view.replaceChildren(el("p", { class: "quiet" }, answer.message));
    this.rows = inOrder(answer.items, search);
    this.longest = Math.max(60, ...answer.items.map((/** @type {Json} */ item) => item.startTime.p90Seconds ?? item.startTime.p50Seconds ?? 0));
    if (!this.table.root.isConnected) this.view.replaceChildren(this.assumed, this.table.root);
    this.assumed.textContent = `If ${answer.assumptions?.arrivals ?? "nothing changes"}. A bar is from p50 to p90, in ${duration(this.longest * 1000)} from the left to the right; a dashed bar has no end.`;
    const hidden = answer.hidden ? `; ${answer.hidden} of namespaces that you may not read` : "";
    const part = answer.complete === false ? "; not all were computed" : "";
    this.table.show(this.rows.length, `${this.rows.length} of ${answer.items.length} waiting workloads${hidden}${part}`);
  }

  /**
   * @param {number} index
   * @returns {import("./table.js").Row}
   */
  rowAt(index) {
    const { metadata, clusterQueue, startTime } = this.rows[index];
    const where = whereOf(startTime);
    const when = whenOf(startTime);
    return {
      key: `${metadata.namespace}/${metadata.name}`,
      drawn: JSON.stringify([clusterQueue, when, where, startTime, this.longest]),
      cells: [
        el("a", { href: workloadLink(metadata.namespace, metadata.name) }, `${metadata.namespace}/${metadata.name}`),
        clusterQueue ?? "",
        when,
        this.bar(startTime, when),
        where,
      ],
    };
  }

  /**
   * @param {Json} start
   * @param {string} when
   */
  bar(start, when) {
    const from = start.p50Seconds;
    if (from === undefined) return null;
    const to = start.p90Seconds ?? this.longest;
    const x = (WIDTH * from) / this.longest;
    /** @type {Record<string, string | number>} */
    const open = start.p90Seconds === undefined ? { "stroke-dasharray": "4 3", "fill-opacity": 0.3 } : {};
    const width = Math.max(4, Math.min(WIDTH - x, (WIDTH * (to - from)) / this.longest));
    const parts = [
      svg("rect", { width: WIDTH, height: 12, fill: "var(--free)" }),
      svg("rect", { x: Math.min(x, WIDTH - 4), width, height: 12, fill: "var(--held)", stroke: "var(--held)", ...open }),
    ];
    return svg("svg", { viewBox: `0 0 ${WIDTH} 12`, preserveAspectRatio: "none", class: "span", role: "img", "aria-label": when }, ...parts);
  }

  close() {
    this.table.close();
  }
}
