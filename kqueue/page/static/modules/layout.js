// @ts-check
// Places the leaves of a topology: boxes of racks, in rows of blocks.  Pure: numbers in, numbers out.

/** @typedef {Record<string, any>} Json */
/** @typedef {{name: string, x: number, y: number}} Label */
/** @typedef {{x: number, y: number, width: number, height: number, name: string}} Box */
/** @typedef {{name: string, reason: string, x: number, y: number}} LeftOutCell */
/** @typedef {{cell: number, width: number, height: number, x: Float32Array, y: Float32Array, labels: Label[], racks: Box[], leftOut: LeftOutCell[]}} Layout */

const HEAD = 16;
const GAP = 6;
const CELLS = [22, 18, 15, 13, 11, 9, 8, 7, 6, 5, 4, 3];

/**
 * Return the position of each leaf, with the largest cells for which the map is not higher than `height`, or the
 * smallest cells where no size fits.
 * @param {Json} flavor of a TopologyMap
 * @param {number} width of the map in pixels
 * @param {number} height that the map should not exceed
 * @returns {Layout}
 */
export function layout(flavor, width, height) {
  const groups = grouped(flavor);
  /** @type {Layout | null} */
  let made = null;
  for (const cell of CELLS) {
    made = placed(flavor, groups, cell, Math.max(width, 160));
    if (made.height <= height) break;
  }
  return /** @type {Layout} */ (made);
}

/**
 * Return the leaves and the left-out nodes of each rack, by block: [block name, [[rack name, leaves, left-out nodes]]].
 * @param {Json} flavor
 * @returns {[string, [string, number[], Json[]][]][]}
 */
export function grouped(flavor) {
  const levels = flavor.domains;
  const racks = levels.length ? levels[levels.length - 1] : { name: [""], inside: [] };
  const blocks = levels.length > 1 ? levels[levels.length - 2] : { name: [""], inside: [] };
  /** @type {[string, number[], Json[]][]} */
  const boxes = racks.name.map((/** @type {string} */ name) => [name, [], []]);
  flavor.leaves.domain.forEach((/** @type {number} */ rack, /** @type {number} */ leaf) => boxes[Math.max(0, rack)][1].push(leaf));
  /** @type {[string, [string, number[], Json[]][]][]} */
  const found = blocks.name.map((/** @type {string} */ name) => [name, []]);
  /** @type {Map<string, [string, number[], Json[]]>} */
  const byPath = new Map();
  boxes.forEach((box, number) => {
    const block = levels.length > 1 ? racks.inside[number] : 0;
    found[block][1].push(box);
    byPath.set(JSON.stringify([found[block][0], box[0]].filter(Boolean)), box);
  });
  /** @type {[string, number[], Json[]]} */
  const elsewhere = ["no rack", [], []];
  for (const node of flavor.leftOut) {
    const box = byPath.get(JSON.stringify(node.path.slice(-2).filter(Boolean)));
    (box ?? elsewhere)[2].push(node);
  }
  if (elsewhere[2].length) found.push(["not in the tree", [elsewhere]]);
  return found;
}

/**
 * Return how many cells a row of a rack has: about twice as many as there are rows, with the fewest empty cells.
 * @param {number} cells
 */
export function columnsFor(cells) {
  const least = Math.max(1, Math.ceil(Math.sqrt(cells * 2)));
  let best = least;
  for (let columns = least; columns <= least + 3; columns++) {
    if (Math.ceil(cells / columns) * columns < Math.ceil(cells / best) * best) best = columns;
  }
  return best;
}

/**
 * @param {Json} flavor
 * @param {[string, [string, number[], Json[]][]][]} groups
 * @param {number} cell
 * @param {number} width
 * @returns {Layout}
 */
function placed(flavor, groups, cell, width) {
  const count = flavor.leaves.name.length;
  /** @type {Layout} */
  const made = { cell, width, height: 0, x: new Float32Array(count), y: new Float32Array(count), labels: [], racks: [], leftOut: [] };
  let top = 0;
  for (const [name, racks] of groups) {
    if (name) made.labels.push({ name, x: 0, y: top + 11 });
    let x = 0;
    let y = top + (name ? HEAD : 0);
    let tallest = 0;
    for (const [rack, leaves, leftOut] of racks) {
      const inside = leaves.length + leftOut.length;
      const columns = Math.min(columnsFor(inside), Math.max(1, Math.floor((width - 2) / cell)));
      const box = { name: rack, x, y, width: columns * cell + 2, height: Math.max(1, Math.ceil(inside / columns)) * cell + 2 };
      if (x > 0 && x + box.width > width) {
        x = box.x = 0;
        y = box.y = y + tallest + GAP;
        tallest = 0;
      }
      made.racks.push(box);
      leaves.forEach((leaf, number) => {
        made.x[leaf] = box.x + 1 + (number % columns) * cell;
        made.y[leaf] = box.y + 1 + Math.floor(number / columns) * cell;
      });
      leftOut.forEach((node, number) => {
        const place = leaves.length + number;
        made.leftOut.push({ name: node.name, reason: node.reason, x: box.x + 1 + (place % columns) * cell, y: box.y + 1 + Math.floor(place / columns) * cell });
      });
      x += box.width + GAP;
      tallest = Math.max(tallest, box.height);
    }
    top = y + tallest + GAP * 2;
  }
  made.height = top;
  return made;
}
