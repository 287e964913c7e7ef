// @ts-check
// One stream of events for the feeds of the open view.  A lost stream is opened again by the browser.

/** @typedef {Record<string, any>} Answer */
/** @typedef {(feed: string, answer: Answer) => void} OnAnswer */

/**
 * Apply the changed leaves of a map to the map: columns are changed in place, and each flavor has its `changed` leaves.
 * @param {Answer} map
 * @param {Answer} change
 * @returns {Answer}
 */
export function patched(map, change) {
  change.flavors.forEach((/** @type {Answer} */ part, /** @type {number} */ number) => {
    const flavor = map.flavors[number];
    flavor.holders = part.holders;
    flavor.leftOut = part.leftOut;
    flavor.changed = part.leaf;
    part.leaf.forEach((/** @type {number} */ leaf, /** @type {number} */ row) => {
      part.columns.forEach((/** @type {string} */ column, /** @type {number} */ place) => {
        flavor.leaves[column][leaf] = part.values[row][place];
      });
    });
  });
  return map;
}

/**
 * Add the new points of trends to the trends.
 * @param {Answer} trends
 * @param {Answer} change
 * @returns {Answer}
 */
export function lengthened(trends, change) {
  trends.left = change.left;
  trends.time.push(...change.time);
  trends.time.splice(0, change.dropped);
  trends.series.forEach((/** @type {Answer} */ one, /** @type {number} */ number) => {
    one.values.push(...change.values[number]);
    one.values.splice(0, change.dropped);
  });
  return trends;
}

/**
 * Return the rows of workloads with the changed ones in their places and the new ones at the end.
 * @param {Answer} table
 * @param {Answer} change
 * @returns {Answer}
 */
export function withRows(table, change) {
  const items = [...table.items];
  for (const [place, row] of change.changed) items[place] = row;
  const gone = new Set(change.gone);
  const kept = gone.size ? items.filter((_, place) => !gone.has(place)) : items;
  return { items: [...kept, ...change.added], left: change.left };
}

/** @type {Record<string, (answer: Answer, change: Answer) => Answer>} */
const MERGES = { trends: lengthened, workloads: withRows };

export class Live {
  /**
   * @param {OnAnswer} onAnswer
   * @param {(words: string, bad: boolean) => void} onState
   */
  constructor(onAnswer, onState) {
    this.onAnswer = onAnswer;
    this.onState = onState;
    /** @type {Map<string, Answer>} */
    this.answers = new Map();
    /** @type {EventSource | null} */
    this.source = null;
    this.wanted = "";
  }

  /**
   * Follow these feeds and no others.
   * @param {string[]} feeds
   */
  follow(feeds) {
    const wanted = feeds.join(" ");
    if (wanted === this.wanted) return;
    this.wanted = wanted;
    this.source?.close();
    this.source = null;
    if (!feeds.length) return;
    const source = new EventSource(`/api/events?${feeds.map((feed) => `feed=${encodeURIComponent(feed)}`).join("&")}`);
    this.source = source;
    this.onState("connecting", false);
    source.onopen = () => this.onState("live", false);
    source.onerror = () => this.onState("no connection to kqueue dashboard; trying again", true);
    for (const feed of feeds) {
      source.addEventListener(feed, (event) => this.take(feed, /** @type {MessageEvent} */ (event).data));
    }
  }

  /**
   * @param {string} feed
   * @param {string} text
   */
  take(feed, text) {
    performance.clearMeasures(`draw ${feed}`); // the browser would keep all of them
    const start = performance.now();
    const data = JSON.parse(text);
    const before = this.answers.get(feed);
    if (data.change && !before) return;
    const answer = data.change && before ? (MERGES[feed] ?? patched)(before, data.change) : data;
    this.answers.set(feed, answer);
    this.onAnswer(feed, answer);
    performance.measure(`draw ${feed}`, { start });
  }
}
