// @ts-check
// Curves over time: waiting workloads, waits, use, fragmentation and the spread of placements, as the server remembers them.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { colour, el, matcher, notice, shown } from "./dom.js";
import { duration } from "./workload.js";

/** @typedef {Record<string, any>} Json */
/** @typedef {import("./main.js").Route} Route */
/** @typedef {import("./main.js").Answers} Answers */
/** @typedef {{of: string, name: string, resource: string, values: (number | null)[]}} Series */
/** @typedef {{key: string, title: string, of: string, resource: string, shown: (value: number) => string}} Chart */

const MOST_CURVES = 8;
const HEIGHT = 170;
const GAP_SECONDS = 75;
// Steps of a scale of seconds, up to a hundred days: whole minutes, hours and days are short to read.
const WAIT_STEPS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 432000, 864000, 1728000, 4320000, 8640000];
const CURVES = ["curve1", "curve2", "curve3", "curve4", "curve5", "curve6", "curve7", "curve8"];
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]];

const count = (/** @type {number} */ value) => String(value);
const thousandths = (/** @type {number} */ value) => `${(value / 10).toFixed(1)} %`;

/**
 * Return the charts for these series.
 * @param {Series[]} series
 * @returns {Chart[]}
 */
export function chartsOf(series) {
  const resources = [...new Set(series.filter(({ of }) => of === "reserved").map(({ resource }) => resource))].sort();
  return [
    { key: "waiting", title: "Waiting workloads by ClusterQueue", of: "waiting", resource: "", shown: count },
    { key: "wait", title: "Longest wait by ClusterQueue", of: "wait", resource: "", shown: (value) => duration(value * 1000) },
    ...resources.map((resource) => ({
      key: `reserved ${resource}`,
      title: `Reserved ${resource} by ClusterQueue`,
      of: "reserved",
      resource,
      shown: resource === "cpu" ? (/** @type {number} */ value) => String(value / 1000) : count,
    })),
    { key: "fragmentation", title: "Fragmentation: free amount in domains that are partly used", of: "fragmentation", resource: "", shown: thousandths },
    { key: "spread", title: "Quality of placements: domains in use, of the fewest possible (100 % is best)", of: "spread", resource: "", shown: thousandths },
  ];
}

/**
 * Return the curves of a chart: those with the largest last values, by name where equal.
 * @param {Series[]} series
 * @param {Chart} chart
 * @param {string} search
 */
export function curvesOf(series, chart, search) {
  const matches = matcher(search);
  const last = (/** @type {Series} */ one) => one.values[one.values.length - 1] ?? -1;
  const found = series.filter((one) => one.of === chart.of && one.resource === chart.resource && matches(one.name));
  found.sort((one, other) => last(other) - last(one) || one.name.localeCompare(other.name));
  return found;
}

/**
 * Return times and values with an empty point where nobody has measured for a while, so that no line crosses it.
 * @param {number[]} times
 * @param {(number | null)[][]} values
 * @returns {(number | null | undefined)[][]}
 */
export function withGaps(times, values) {
  /** @type {(number | null | undefined)[][]} */
  const found = [[], ...values.map(() => [])];
  times.forEach((time, place) => {
    if (place && time - times[place - 1] > GAP_SECONDS) {
      found[0].push(time - 1);
      values.forEach((_, number) => found[number + 1].push(null));
    }
    found[0].push(time);
    values.forEach((one, number) => found[number + 1].push(one[place] ?? undefined)); // a missing value is bridged, null is not
  });
  return found;
}

/** One chart with its legend. */
class Plot {
  /** @param {Chart} chart */
  constructor(chart) {
    this.chart = chart;
    this.title = el("h2", {}, chart.title);
    this.canvas = el("div", { class: "plot", role: "img" });
    this.legend = el("ul", { class: "keys" });
    this.root = el("section", {}, this.title, this.canvas, this.legend);
    this.names = "";
    /** @type {Map<string, number>} */
    this.places = new Map(); // the colour of each curve, which stays while the curve is shown
    /** @type {uPlot | null} */
    this.plot = null;
  }

  /**
   * @param {number[]} times
   * @param {Series[]} found
   * @param {number} width
   */
  show(times, found, width) {
    const curves = this.placed(found.slice(0, MOST_CURVES));
    const names = JSON.stringify(curves.map(({ name }) => name));
    const data = /** @type {any} */ (withGaps(times, curves.map(({ values }) => values)));
    if (names !== this.names || !this.plot) {
      this.plot?.destroy();
      this.names = names;
      this.plot = new uPlot(this.options(curves, width), data, this.canvas);
    } else {
      if (this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT });
      this.plot.setData(data);
    }
    const value = (/** @type {Series} */ { values }) => {
      const last = values.findLast((one) => one !== null) ?? null; // maps are read once a minute
      return last === null ? "no value" : this.chart.shown(last);
    };
    const items = curves.map((one) => el("li", {}, sample(this.place(one)), `${one.name}: ${value(one)}`));
    const more = found.length - curves.length;
    this.legend.replaceChildren(...items, ...(more ? [el("li", { class: "quiet" }, `and ${more} more: search for them`)] : []));
    this.canvas.setAttribute("aria-label", `${this.chart.title}. Now ${curves.map((one) => `${shown(one.name)} ${value(one)}`).join(", ") || "nothing"}`);
  }

  /**
   * Return curves in the order of their colours; a new one gets a colour that is not in use.
   * @param {Series[]} curves
   */
  placed(curves) {
    const shownNames = new Set(curves.map(({ name }) => name));
    for (const name of this.places.keys()) if (!shownNames.has(name)) this.places.delete(name);
    const free = CURVES.map((_, place) => place).filter((place) => ![...this.places.values()].includes(place));
    for (const { name } of curves) if (!this.places.has(name)) this.places.set(name, free.shift() ?? 0);
    return curves.sort((one, other) => this.place(one) - this.place(other));
  }

  /** @param {{name: string}} one */
  place({ name }) {
    return this.places.get(name) ?? 0;
  }

  /**
   * @param {Series[]} curves
   * @param {number} width
   * @returns {uPlot.Options}
   */
  options(curves, width) {
    const axis = { stroke: colour("dim"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
    const words = (/** @type {uPlot} */ _, /** @type {number[]} */ values) => values.map((value) => this.chart.shown(value));
    return {
      width,
      height: HEIGHT,
      legend: { show: false },
      cursor: { drag: { x: true, y: false } },
      scales: { y: { range: (_plot, _least, most) => [0, Math.max(1, most * 1.05)] } },
      axes: [axis, { ...axis, size: 100, values: words, ...(this.chart.of === "wait" ? { incrs: WAIT_STEPS } : {}) }],
      series: [
        {},
        ...curves.map((one) => {
          const place = this.place(one);
          return { label: shown(one.name), stroke: colour(CURVES[place]), width: 2, dash: DASHES[place % DASHES.length], points: { show: false } };
        }),
      ],
    };
  }

  close() {
    this.plot?.destroy();
  }
}

export class TrendsView {
  /** @param {HTMLElement} view */
  constructor(view) {
    this.view = view;
    /** @type {Map<string, Plot>} */
    this.plots = new Map();
    this.since = el("p", { class: "quiet" });
  }

  feeds() {
    return ["trends"];
  }

  /**
   * @param {Answers} answers
   * @param {Route} route
   */
  draw(answers, { search }) {
    const answer = answers.get("trends");
    if (!answer) return void this.view.replaceChildren(el("p", { class: "quiet" }, "Waiting for the first answer."));
    if (answer.error) return void this.view.replaceChildren(notice(answer.error));
    const found = chartsOf(answer.series).map((chart) => /** @type {[Chart, Series[]]} */ ([chart, curvesOf(answer.series, chart, search)]));
    const charts = found.filter(([, curves]) => curves.length);
    const wanted = charts.map(([{ key }]) => key);
    for (const [key, plot] of this.plots) if (!wanted.includes(key)) (plot.close(), this.plots.delete(key));
    for (const [chart] of charts) if (!this.plots.has(chart.key)) this.plots.set(chart.key, new Plot(chart));
    const roots = wanted.map((key) => /** @type {Plot} */ (this.plots.get(key)).root);
    const current = [...this.view.children];
    if (current.length !== roots.length + 1 || roots.some((root, place) => current[place + 1] !== root)) this.view.replaceChildren(this.since, ...roots);
    const left = answer.left ? ` ${answer.left} further numbers have no place in the memory.` : "";
    this.since.textContent = charts.length
      ? `Remembered since ${new Date(answer.time[0] * 1000).toLocaleString(undefined, { dateStyle: "short", timeStyle: "short" })}, for a day at most.${left} Drag over a plot to look closer, double click to see all.`
      : "Nothing matches the search.";
    const width = Math.max(320, this.view.clientWidth - 32);
    for (const [chart, curves] of charts) this.plots.get(chart.key)?.show(answer.time, curves, width);
  }

  close() {
    for (const plot of this.plots.values()) plot.close();
  }
}

/** @param {number} place of a curve */
function sample(place) {
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { width: "28", height: "12", "aria-hidden": "true" }));
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.strokeStyle = colour(CURVES[place]);
  pen.lineWidth = 3;
  pen.setLineDash(DASHES[place % DASHES.length]);
  pen.moveTo(0, 6);
  pen.lineTo(28, 6);
  pen.stroke();
  return canvas;
}
