// @ts-check
// The page of one workload: why it waits or runs, as `kqueue explain` says it, and its life as a line in time.

import { askWhatIf, linesOf } from "./ask.js";
import { el, notice, svg } from "./dom.js";

/** @typedef {Record<string, any>} Json */
/** @typedef {import("./main.js").Route} Route */
/** @typedef {import("./main.js").Answers} Answers */

const EVERY = 5000;
const WIDTH = 900;
const STATES = /** @type {Record<string, string>} */ ({ Pending: "free", Reserved: "borrowed", Admitted: "foreign", Running: "held", Finished: "line" });

export class WorkloadView {
  /** @param {HTMLElement} view */
  constructor(view) {
    this.life = el("section", { "aria-label": "Life" });
    this.why = el("section", { "aria-label": "Explanation" }, el("p", { class: "quiet" }, "Asking the planner."));
    view.append(this.why, this.life);
    this.asking = new AbortController();
    this.follows = false;
  }

  feeds() {
    return [];
  }

  /**
   * @param {Answers} _answers
   * @param {Route} route
   */
  draw(_answers, route) {
    if (this.follows) return;
    this.follows = true;
    const [namespace, name] = route.rest;
    this.follow(`${encodeURIComponent(namespace)}/${encodeURIComponent(name ?? "")}`, `${namespace}/${name}`);
  }

  /**
   * Keep the page fresh until another view is opened.
   * @param {string} path
   * @param {string} title
   */
  async follow(path, title) {
    const { signal } = this.asking;
    while (!signal.aborted) {
      await Promise.all([
        this.ask(`/api/explanations/${path}`, this.why, (answer) => explained(answer, title), title),
        this.ask(`/api/lives/${path}`, this.life, lifeOf, ""),
      ]);
      await new Promise((resolve) => setTimeout(resolve, EVERY));
    }
  }

  /**
   * @param {string} path
   * @param {HTMLElement} section
   * @param {(answer: Json) => HTMLElement[]} drawn
   * @param {string} title above an error
   */
  async ask(path, section, drawn, title) {
    const { signal } = this.asking;
    try {
      const answer = await (await fetch(path, { signal })).json();
      if (answer.error) section.replaceChildren(...(title ? [el("h2", {}, title), notice(answer.error)] : []));
      else section.replaceChildren(...drawn(answer));
    } catch (error) {
      if (!signal.aborted) section.replaceChildren(notice(`no answer: ${error}`));
    }
  }

  close() {
    this.asking.abort();
  }
}

/**
 * Return an explanation, and below that of a workload with quota the question what its end would change.
 * @param {Json} answer
 * @param {string} key namespace/name
 * @returns {HTMLElement[]}
 */
export function explained(answer, key) {
  const lines = linesOf(answer.lines);
  if (!answer.explanation?.running) return [lines];
  const ask = () => askWhatIf(`${key} ended now`, { ends: [key] });
  return [lines, el("p", {}, el("button", { type: "button", onclick: ask }, "What if it ended now"))];
}

/**
 * Return the line of states, and the moments below it.
 * @param {Json} answer
 * @returns {HTMLElement[]}
 */
export function lifeOf(answer) {
  const spans = spansOf(answer.states, Date.now());
  const rows = answer.moments.map((/** @type {Json} */ moment) =>
    el("tr", {}, el("td", { class: "time" }, local(moment.time)), el("td", { class: moment.kind === "warning" ? "warn" : null }, moment.what), el("td", { class: "words" }, moment.message)),
  );
  const head = el("tr", {}, ...["Time", "What", "Message"].map((title) => el("th", { scope: "col" }, title)));
  const left = answer.left ? `, without the ${answer.left} oldest` : "";
  const found = [el("h2", {}, "Life"), picture(spans), el("table", {}, el("caption", {}, `Conditions and events, the oldest first${left}`), el("thead", {}, head), el("tbody", {}, ...rows))];
  if (answer.problem) found.push(notice(answer.problem));
  return found;
}

/**
 * Return the states with the time at which each began and ended, in milliseconds; a finished workload's last state has no length.
 * @param {{state: string, time: string}[]} states
 * @param {number} now
 */
export function spansOf(states, now) {
  return states.map(({ state, time }, number) => {
    const from = Date.parse(time);
    const next = states[number + 1];
    const to = next ? Date.parse(next.time) : state === "Finished" ? from : Math.max(from, now);
    return { state, from, to };
  });
}

/** @param {{state: string, from: number, to: number}[]} spans */
function picture(spans) {
  if (!spans.length) return el("p", { class: "quiet" }, "Its times are not known.");
  const begin = spans[0].from;
  const whole = Math.max(1, spans[spans.length - 1].to - begin);
  const bars = spans.map(({ state, from, to }, number) => {
    const x = (WIDTH * (from - begin)) / whole;
    const title = svg("title", {}, `${state}: ${duration(to - from)}`);
    return svg("rect", { x, y: 2 + 3 * number, width: Math.max(2, (WIDTH * (to - from)) / whole), height: 26 - 3 * number, fill: `var(--${STATES[state]})`, stroke: "var(--dim)" }, title);
  });
  const words = spans.map(({ state, from, to }) => (state === "Finished" ? `${state} at ${local(new Date(from).toISOString())}` : `${state} ${duration(to - from)}`)).join(", then ");
  const image = svg("svg", { viewBox: `0 0 ${WIDTH} 30`, class: "life", role: "img", "aria-label": `${words}` }, ...bars);
  const keys = spans.map(({ state }) => el("li", {}, swatch(STATES[state]), state));
  return el("div", {}, el("div", {}, image), el("ul", { class: "keys", "aria-label": "States" }, ...keys), el("p", {}, words));
}

/** @param {string} name of a colour */
function swatch(name) {
  return svg("svg", { width: 14, height: 14, "aria-hidden": "true" }, svg("rect", { width: 14, height: 14, fill: `var(--${name})`, stroke: "var(--dim)" }));
}

/**
 * Return a length of time: "3 min 20 s".
 * @param {number} milliseconds
 */
export function duration(milliseconds) {
  let seconds = Math.round(milliseconds / 1000);
  const parts = /** @type {[string, number][]} */ ([["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]).map(([unit, size]) => {
    const count = Math.floor(seconds / size);
    seconds -= count * size;
    return count ? `${count} ${unit}` : "";
  });
  return parts.filter(Boolean).slice(0, 2).join(" ") || "0 s";
}

/** @param {string} time RFC 3339 */
function local(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? time : date.toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
}
